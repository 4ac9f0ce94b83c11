#!/bin/bash
# Installs what haxlb needs on a fresh Debian 12: the Debian packages below (those that are missing) and the virtual
# environment .venv. Called by make; SUDO is how to become root, empty when we are. Everything it says goes to stderr:
# `make demo ARGS=--json` has its stdout for one JSON object.
set -euo pipefail
cd "$(dirname "$0")/.."
exec >&2

PACKAGES=(
  # To run: BCC (never PyPI's project of that name), the kernel's user-space headers that it compiles with, tools.
  python3 python3-venv python3-bpfcc linux-libc-dev iproute2 nftables ethtool procps ca-certificates
  # The demo's and the tests' peers: web servers, the other implementation of VRRP, an MQTT broker, a dissector.
  nginx-light keepalived frr mosquitto tshark openssl iputils-ping
  # To build the benchmark's counterpart and to check that bpf/ is also plain clang's.
  clang gcc libc6-dev libbpf-dev
)

die() {
  echo "setup: $*"
  exit 1
}

command -v apt-get >/dev/null || die "this is not Debian: install the equivalents of ${PACKAGES[*]}, then run pip yourself"

missing=()
for package in "${PACKAGES[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] && ! command -v "${SUDO:-sudo}" >/dev/null; then
    die "installing ${missing[*]} needs root, and there is no sudo: run make as root"
  fi
  echo "setup: installing Debian packages: ${missing[*]}"
  # Their services must not start: haxlb's tests run their own, in namespaces of their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $SUDO tee "$policy" >/dev/null
    $SUDO chmod +x "$policy"
    trap '$SUDO rm -f "$policy"' EXIT
  fi
  $SUDO env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get update -qq
  $SUDO env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  # The system's Python: haxlb's own processes and the compiler helper (which imports Debian's bcc) run the same one.
  echo "setup: making the virtual environment .venv"
  /usr/bin/python3 -m venv --clear .venv
fi
echo "setup: installing Python packages into .venv"
pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input -qq)
"${pip[@]}" install --upgrade 'pip>=25.1' # the first one that knows --group
"${pip[@]}" install --editable . --group dev
