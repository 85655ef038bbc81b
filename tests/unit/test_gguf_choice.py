"""Which file of a repository is meant. Where llama.cpp takes another, the test says why we do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.hub.gguf_choice import by_llama_cpp, gguf_name, has_tag, models, parts, plainest, sidecars

UNSLOTH = [
    "BF16/X-BF16-00001-of-00002.gguf",
    "BF16/X-BF16-00002-of-00002.gguf",
    "README.md",
    "X-F16.gguf",
    "X-Q4_K_M.gguf",
    "X-Q8_0.gguf",
    "X-UD-Q4_K_M.gguf",
    "X-UD-Q4_K_XL.gguf",
    "config.json",
    "dflash-X-Q8_0.gguf",
    "imatrix-X.gguf",
    "mmproj-F16.gguf",
    "mtp-X-Q4_K_M.gguf",
]


@pytest.mark.parametrize(
    ("tag", "path"),
    [
        ("Q4_K_M", "X-Q4_K_M.gguf"),
        ("q8_0", "X-Q8_0.gguf"),
        ("UD-Q4_K_M", "X-UD-Q4_K_M.gguf"),
        ("Q4_K_XL", "X-UD-Q4_K_XL.gguf"),
        ("BF16", "BF16/X-BF16-00001-of-00002.gguf"),
        ("", "X-Q4_K_M.gguf"),
    ],
)
def test_the_model_of_a_tag_as_llama_cpp_takes_it(tag, path):
    assert plainest(models(UNSLOTH, tag), tag) == [path]
    assert by_llama_cpp(UNSLOTH, tag) == path


def test_f16_is_not_bf16():
    # llama.cpp looks for the tag anywhere in the path, and meets BF16 first: somebody who asks for F16 gets twice the
    # exponent and an eighth of the precision, in silence.
    assert by_llama_cpp(UNSLOTH, "F16") == "BF16/X-BF16-00001-of-00002.gguf"
    assert models(UNSLOTH, "F16") == ["X-F16.gguf"]
    only = [path for path in UNSLOTH if path != "X-F16.gguf"]
    assert models(only, "F16") == []


def test_a_tag_is_text_and_not_a_pattern():
    # llama.cpp makes a regular expression of it, of which `.` fits anything.
    assert by_llama_cpp(["X-Q4_0.gguf"], "Q4.0") == "X-Q4_0.gguf"
    assert models(["X-Q4_0.gguf"], "Q4.0") == []


@pytest.mark.parametrize("tag", ["K_M", "4_K_M", "X", "Q4"])
def test_a_part_of_a_word_is_no_tag(tag):
    assert models(["X-Q4_K_M.gguf"], tag) == ([] if tag != "X" else ["X-Q4_K_M.gguf"])


def test_a_tag_at_the_end_is_better_than_one_inside():
    assert models(["X-Q8_0-v2.gguf", "X-v2-Q8_0.gguf"], "Q8_0") == ["X-v2-Q8_0.gguf"]
    assert models(["X-Q8_0-v2.gguf", "X.gguf"], "Q8_0") == ["X-Q8_0-v2.gguf"]
    assert models(["Q8_0/X.gguf", "X.gguf"], "Q8_0") == ["Q8_0/X.gguf"]


def test_what_names_leave_open_stays_open():
    # llama.cpp takes the first of the listing: of two models in one repository the one whose name comes first.
    both = ["A-Q4_K_M.gguf", "B-Q4_K_M.gguf"]
    assert by_llama_cpp(both, "Q4_K_M") == "A-Q4_K_M.gguf"
    assert plainest(models(both, "Q4_K_M"), "Q4_K_M") == both
    assert plainest(models(["A-IQ3_S.gguf", "A-Q6_K.gguf"])) == ["A-IQ3_S.gguf", "A-Q6_K.gguf"]


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (["X-Q8_0.gguf", "X-Q4_K_M.gguf", "X-BF16.gguf"], "X-Q4_K_M.gguf"),
        (["X-BF16.gguf", "X-Q8_0.gguf"], "X-Q8_0.gguf"),
        (["X-BF16.gguf", "mmproj-X-Q4_K_M.gguf"], "X-BF16.gguf"),
        (["X.gguf"], "X.gguf"),
    ],
)
def test_without_a_tag(files, path):
    assert plainest(models(files)) == [path]
    assert by_llama_cpp(files) == path


def test_without_a_model_there_is_none():
    files = ["mmproj-F16.gguf", "dflash-X-Q8_0.gguf", "model.safetensors"]
    assert models(files) == models(files, "F16") == []
    assert by_llama_cpp(files) is None


@pytest.mark.parametrize(
    ("tag", "like", "path"),
    [
        ("", "X-Q8_0.gguf", "dflash-X-Q8_0.gguf"),
        ("", "X-Q4_K_M.gguf", "dflash-X-Q4_0.gguf"),
        ("", "X-IQ3_XXS.gguf", "dflash-X-Q4_0.gguf"),
        ("", "X-F16.gguf", "dflash-X-BF16.gguf"),
        ("Q8_0", "X-Q4_K_M.gguf", "dflash-X-Q8_0.gguf"),
        ("Q6_K_L", "X-Q4_K_M.gguf", None),
    ],
)
def test_of_several_sidecars_the_nearest(tag, like, path):
    """As in llama.cpp; a tie is left open, of which it would take the first of the listing."""
    files = ["dflash-X-BF16.gguf", "dflash-X-Q8_0.gguf", "dflash-X-Q4_0.gguf", like]
    found = sidecars(files, like, tag, like)
    assert found == ([path] if path else ["dflash-X-Q4_0.gguf", "dflash-X-Q8_0.gguf"])


def test_q8_0_is_nearer_to_q4_k_m_than_f16():
    files = ["X-Q4_K_M.gguf", "dflash-X-F16.gguf", "dflash-X-Q8_0.gguf"]
    assert sidecars(files, "X-Q4_K_M.gguf", like="X-Q4_K_M.gguf") == ["dflash-X-Q8_0.gguf"]


def test_of_two_with_as_many_bits_the_one_of_the_same_type():
    # llama.cpp compares only the numbers here, unless a tag was given, and takes the first of the two.
    files = ["dflash-X-Q4_0.gguf", "dflash-X-Q4_K_M.gguf"]
    assert sidecars(files, None, like="X-Q4_K_M.gguf") == ["dflash-X-Q4_K_M.gguf"]


def test_a_name_without_a_type_is_near_to_none():
    # For llama.cpp it has 0 bits, so that the smallest drafter is nearest.
    files = ["dflash-X-Q4_0.gguf", "dflash-X-Q8_0.gguf"]
    assert sidecars(files, None, like="X.gguf") == files


@pytest.mark.parametrize(
    ("path", "sidecar"),
    [
        ("dflash-X-Q8_0.gguf", True),
        ("dspark-X-Q8_0.gguf", True),
        ("X-dflash-Q8_0.gguf", True),
        ("X-DFlash-Q8_0.gguf", False),
        ("X-DFlash2-Q8_0.gguf", False),
        ("dflash-X-Q8_0.safetensors", False),
        # llama.cpp looks at the whole path, and takes every file of such a folder for a drafter.
        ("dflash-demo/X-Q8_0.gguf", False),
        # These it takes too, and drafts with them; we have no loop for their kinds.
        ("mtp-X-Q8_0.gguf", False),
        ("eagle3-X-Q8_0.gguf", False),
    ],
)
def test_what_a_sidecar_is_called(path, sidecar):
    assert sidecars([path], None) == ([path] if sidecar else [])


def test_a_sidecar_lies_with_its_model_or_above_it_and_the_nearest_folder_wins():
    files = ["a/X-Q4_0.gguf", "a/dflash-X-F16.gguf", "b/dflash-Y-Q4_0.gguf", "dflash-Z-Q4_0.gguf"]
    assert sidecars(files, "a/X-Q4_0.gguf", like="X-Q4_0.gguf") == ["a/dflash-X-F16.gguf"]
    assert sidecars([*files[:1], *files[2:]], "a/X-Q4_0.gguf", like="X-Q4_0.gguf") == ["dflash-Z-Q4_0.gguf"]
    assert sidecars(files, "X-Q4_0.gguf", like="X-Q4_0.gguf") == ["dflash-Z-Q4_0.gguf"]


def test_a_repository_of_drafters_alone_may_keep_them_in_folders():
    # llama.cpp compares them with the model of the same repository, and without one it looks at the top alone.
    files = ["q4/dflash-X-Q4_0.gguf", "q8/dflash-X-Q8_0.gguf"]
    assert sidecars(files, None, "Q8_0") == ["q8/dflash-X-Q8_0.gguf"]


def test_parts_of_a_split_file():
    assert parts("a/X-Q4_0-00002-of-00003.gguf") == [f"a/X-Q4_0-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert parts("a/X-Q4_0.gguf") == ["a/X-Q4_0.gguf"]


def test_a_split_file_stands_for_its_first_part():
    files = [f"X-Q4_K_M-0000{n}-of-00002.gguf" for n in (2, 1)]
    assert models(files, "Q4_K_M") == models(files) == [files[1]]
    assert gguf_name(files[0]).tag == "Q4_K_M"
    assert has_tag(files[0], "q4_k_m")


@pytest.mark.parametrize("words", ["00001-of-00000", "00003-of-00002", "00000-of-00002"])
def test_numbers_that_no_part_has_are_words(words):
    path = f"X-Q8_0-{words}.gguf"
    assert parts(path) == models([path]) == [path]


WORDS = st.sampled_from(["X", "UD", "Q4_K_M", "Q8_0", "F16", "BF16", "mmproj", "dflash", "dspark", "00001-of-00002"])
PATHS = st.lists(
    st.builds(
        lambda folder, words: f"{folder}{'-'.join(words)}.gguf",
        st.sampled_from(["", "a/", "a/b/"]),
        st.lists(WORDS, min_size=1, max_size=4),
    ),
    unique=True,
    max_size=8,
)
TAGS = st.sampled_from(["", "Q4_K_M", "q8_0", "F16", "BF16", "UD", "."])


@given(PATHS, TAGS)
def test_the_order_of_a_listing_does_not_matter(paths, tag):
    assert plainest(models(paths, tag), tag) == plainest(models(paths[::-1], tag), tag)
    assert sidecars(paths, None, tag) == sidecars(paths[::-1], None, tag)


@given(PATHS, TAGS)
def test_what_is_found_is_listed_and_llama_cpp_would_know_it(paths, tag):
    found = models(paths, tag)
    assert set(plainest(found, tag)) <= set(found) <= set(paths)
    if found:
        assert by_llama_cpp(paths, tag) is not None or f"{tag}/".lower() in found[0].lower()
    assert set(sidecars(paths, None, tag)).isdisjoint(found)
