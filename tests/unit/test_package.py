"""What importing costs, what is installed, and that the process maps one libllama."""

import importlib.metadata
import json
import subprocess
import sys
from importlib.resources import files

import pytest

import dflash_gguf
from dflash_gguf import abi

HEAVY = ("numpy", "httpx", "llama_cpp", "huggingface_hub", "gguf", "safetensors", "tokenizers", "dflash_gguf._core")


def modules_after(code):
    script = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "code",
    [
        "import dflash_gguf",
        "from dflash_gguf.cli import root; root.main(['--help'], standalone_mode=False)",
        "from dflash_gguf.cli import root; root.main(['run', '--help'], standalone_mode=False)",
        "from dflash_gguf.cli import root; root.main(['convert', '--help'], standalone_mode=False)",
        "from dflash_gguf.cli import root; root.main(['modelfile', '--help'], standalone_mode=False)",
        "from dflash_gguf.cli import root; root.main(['recipe', '--help'], standalone_mode=False)",
    ],
)
def test_import_and_help_load_nothing_heavy(code):
    assert not set(HEAVY) & set(modules_after(code))


def test_every_public_name_is_there_and_stays_callable_once_its_module_is_imported():
    import dflash_gguf.convert.api
    import dflash_gguf.modelfile.api

    for name in dflash_gguf.__all__:
        assert getattr(dflash_gguf, name) is not None
    assert callable(dflash_gguf.convert)
    assert callable(dflash_gguf.modelfile)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dflash_gguf.no_such_name


def test_versions_agree():
    assert importlib.metadata.version("dflash-gguf") == dflash_gguf.__version__


def test_the_template_and_the_type_marker_are_installed():
    package = files("dflash_gguf")
    assert "$" in (package / "Modelfile.template").read_text(encoding="utf-8")
    assert (package / "py.typed").is_file()
    assert (package / "demo" / "smollm2-135m-dflash2" / "README.md").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("first", ["import dflash_gguf._core", "import llama_cpp, dflash_gguf._core"])
def test_the_process_maps_one_libllama(first):
    script = f"{first}\nprint(*{{line.split()[-1] for line in open('/proc/self/maps') if 'libllama' in line}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert len(done.stdout.split()) == 1


def test_the_extension_states_every_fact_that_is_compared():
    script = "import dflash_gguf.abi as a, json; a.check = lambda f: print(json.dumps(f)); import dflash_gguf._core"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    facts = json.loads(done.stdout)
    assert set(facts) == {
        "llama_cpp_python",
        "llama_version",
        "address_of_llama_version",
        "sizeof_llama_context_params",
        "sizeof_llama_model_params",
        "llama_context_params",
        "llama_model_params",
    }
    assert facts["sizeof_llama_context_params"] == 160
    assert len(facts["llama_context_params"]) == 6
    assert len(facts["llama_model_params"]) == 4


def test_abi_views_that_agree_pass():
    facts = abi.python_facts()
    abi.check(facts, facts)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sizeof_llama_context_params": 152}, r"`sizeof_llama_context_params` is 152 .* and 160 "),
        ({"llama_version": "0.4.9"}, r"`llama_version` is '0.4.9' .* and '0.5.0-dev'"),
        ({"llama_cpp_python": "0.3.35"}, r"`llama_cpp_python` is '0.3.35' .* and '0.3.36'"),
        ({"address_of_llama_version": 1}, r"`address_of_llama_version` is 1 "),
        ({"llama_context_params": {"n_batch": 7}}, r"`llama_context_params.n_batch` is 7 .* and 2048"),
    ],
)
def test_abi_views_that_differ_are_an_import_error_naming_both(changed, named):
    with pytest.raises(ImportError, match=named):
        abi.check(changed)


def test_an_import_that_fails_names_both_versions():
    script = "import llama_cpp; llama_cpp.__version__ = '0.3.99'; import dflash_gguf._core"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "ImportError: dflash_gguf._core does not fit this llama-cpp-python: `llama_cpp_python` is '0.3.36'"
    )
    assert "'0.3.99' in llama-cpp-python" in last


def test_the_stub_is_what_the_extension_says(tmp_path):
    out = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "dflash_gguf._core", "-o", str(out)]
    subprocess.run(command, check=True, timeout=120)
    committed = (files("dflash_gguf") / "_core.pyi").read_text(encoding="utf-8")
    assert out.read_text(encoding="utf-8") == committed
