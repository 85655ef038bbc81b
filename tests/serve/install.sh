#!/usr/bin/env bash
# What tests/serve needs beside the package, put into the virtual environment given: clients from PyPI, z-lab's client
# in an environment of its own, since it pins what it needs, and Chromium where Debian's packages can be installed.
set -euo pipefail
venv=$1

"$venv/bin/python" -m pip install --quiet --group clients

# Its datasets are read by `dflash benchmark` alone, which needs a hub; they come to 350 MB with what they need.
test -x "$venv/dflash-client/bin/python" || "$venv/bin/python" -m venv "$venv/dflash-client"
"$venv/dflash-client/bin/python" -m pip install --quiet requests==2.34.2 tqdm==4.70.0
"$venv/dflash-client/bin/python" -m pip install --quiet --no-deps dflash==0.1.0

have_browser() {
  command -v chromedriver && { command -v chromium || command -v chromium-browser || command -v google-chrome; }
}
if ! have_browser > /dev/null; then
  as_root=()
  test "$(id -u)" -eq 0 || as_root=(sudo -n)
  if command -v apt-get > /dev/null && "${as_root[@]}" true 2> /dev/null; then
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
      chromium chromium-driver fonts-dejavu-core curl > /dev/null
  else
    echo "the page's tests will be skipped: install Chromium and chromedriver (Debian: chromium chromium-driver)" >&2
  fi
fi
