#!/bin/bash
# Installs the Debian packages named as arguments (those that are missing) and the virtual environment .venv.
# Called by `make setup`; SUDO is how to become root, empty when we are.
set -euo pipefail

missing=()
for package in "$@"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing Debian packages: ${missing[*]}"
  # Their services must not start: haxlb's tests run their own, in namespaces of their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $SUDO tee "$policy" >/dev/null
    $SUDO chmod +x "$policy"
    trap '$SUDO rm -f "$policy"' EXIT
  fi
  $SUDO env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -x .venv/bin/python ]; then
  # The system's Python 3.11: the newest that Debian 12 has, and the one whose bcc the compiler helper imports.
  echo "setup: making .venv"
  /usr/bin/python3 -m venv .venv
fi
echo "setup: installing Python packages into .venv"
.venv/bin/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
.venv/bin/pip install --quiet --disable-pip-version-check --editable . --group dev
