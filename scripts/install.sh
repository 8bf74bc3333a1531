#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What Trireme needs from the distribution, in one table, and a function that installs what is missing.
#
# Run it (`scripts/install.sh build test`) or source it and call trireme_install SET...; the sets are build, test,
# full (tools of the full test tier) and nightly. With everything in place it asks dpkg once and returns. Without apt-get
# it names the packages and goes on as long as the headers and tools are there. Status 2: something needed is missing.

# set, Debian/Ubuntu name, Fedora name, Arch name, how to tell that it is there without a package manager
trireme_packages() {
  cat <<'TABLE'
build    gcc             gcc                 gcc             command:gcc
build    libc6-dev       glibc-devel         glibc           header:stdio.h
build    cmake           cmake               cmake           command:cmake
build    ninja-build     ninja-build         ninja           command:ninja
build    pkg-config      pkgconf-pkg-config  pkgconf         command:pkg-config
build    libdnnl-dev     onednn-devel        onednn          header:oneapi/dnnl/dnnl.h
build    libhwloc-dev    hwloc-devel         hwloc           header:hwloc.h
build    libyaml-dev     libyaml-devel       libyaml         header:yaml.h
build    libjansson-dev  jansson-devel       jansson         header:jansson.h
build    libxxhash-dev   xxhash-devel        xxhash          header:xxhash.h
build    libpcre2-dev    pcre2-devel         pcre2           header:pcre2.h
build    libutf8proc-dev utf8proc-devel      libutf8proc     header:utf8proc.h
build    zlib1g-dev      zlib-devel          zlib            header:zlib.h
build    libzstd-dev     libzstd-devel       zstd            header:zstd.h
test     libcmocka-dev   libcmocka-devel     cmocka          header:cmocka.h
full     clang           clang               clang           command:clang
full     libclang-rt-dev compiler-rt         compiler-rt     fuzzer:clang
full     clang-format    clang-tools-extra   clang           command:clang-format
full     shellcheck      ShellCheck          shellcheck      command:shellcheck
full     openmpi-bin     openmpi             openmpi         command:mpirun.openmpi
full     libopenmpi-dev  openmpi-devel       openmpi         command:mpicc.openmpi
full     mpich           mpich               mpich           command:mpirun.mpich
full     libmpich-dev    mpich-devel         mpich           command:mpicc.mpich
full     iproute2        iproute-tc          iproute2        command:tc
full     python3         python3             python          command:python3
full     python3-numpy   python3-numpy       python-numpy    python:numpy
full     python3-torch   python3-torch       python-pytorch  python:torch
nightly  clang-tidy      clang-tools-extra   clang           command:clang-tidy
nightly  debootstrap     debootstrap         debootstrap     command:debootstrap
nightly  slurmctld       slurm-slurmctld     slurm-llnl      command:/usr/sbin/slurmctld
nightly  slurmd          slurm-slurmd        slurm-llnl      command:/usr/sbin/slurmd
nightly  slurm-client    slurm               slurm-llnl      command:srun
nightly  munge           munge               munge           command:/usr/sbin/munged
TABLE
}

# Whether something is usable although no package of that name is installed (built by hand, another distribution).
trireme_present() {
  local what=${1#*:} folder
  case $1 in
  command:*) command -v "$what" >/dev/null 2>&1 ;;
  python:*) python3 -c "import $what" >/dev/null 2>&1 ;;
  fuzzer:*) echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | "$what" -fsanitize=fuzzer -x c - -o /dev/null >/dev/null 2>&1 ;;
  header:*)
    for folder in /usr/include /usr/local/include /usr/include/*-linux-gnu; do
      if [ -e "$folder/$what" ]; then return 0; fi
    done
    return 1
    ;;
  esac
}

# The rows of the wanted sets that are neither installed nor otherwise present.
trireme_missing() {
  local installed='' set debian fedora arch probe
  if command -v dpkg-query >/dev/null 2>&1; then
    # shellcheck disable=SC2016 # the dollar signs are dpkg-query's
    installed=" $(dpkg-query -W -f '${db:Status-Abbrev}:${Package}\n' 2>/dev/null | sed -n 's/^.i *://p' | tr '\n' ' ')"
  fi
  trireme_packages | while read -r set debian fedora arch probe; do
    case " $* " in *" $set "*) ;; *) continue ;; esac
    case $installed in *" $debian "*) continue ;; esac
    if trireme_present "$probe"; then continue; fi
    echo "$set $debian $fedora $arch $probe"
  done
}

# Run a command as root: as it is, or through sudo (never waiting for a password that nobody can type).
trireme_as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

trireme_apt() {
  trireme_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

# Whether apt knows a version that it could install.
trireme_apt_knows() {
  grep -q '^ *Candidate: [^(]' <<<"$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)"
}

trireme_apt_install() {
  local package log known=() unknown=()
  log=$(mktemp)
  echo "Installing: $*"
  if ! trireme_apt update >"$log" 2>&1; then
    echo "apt-get update failed, going on with the package lists at hand. It said:" >&2
    grep -E '^[EW]:' "$log" | head -5 >&2 || true
  fi
  for package in "$@"; do
    if trireme_apt_knows "$package"; then known+=("$package"); else unknown+=("$package"); fi
  done
  if [ ${#unknown[@]} -gt 0 ]; then
    echo "apt has no package named: ${unknown[*]} (on Ubuntu the 'universe' component must be enabled)" >&2
  fi
  if [ ${#known[@]} -gt 0 ] && ! trireme_apt install --no-install-recommends "${known[@]}" >"$log" 2>&1; then
    echo "apt-get install ${known[*]} failed:" >&2
    tail -15 "$log" >&2
  fi
  rm -f "$log"
}

# Names for people whose distribution has no apt-get, or who may not install.
trireme_tell() {
  local rows=$1
  echo "Needed here, and not found by this script:" >&2
  echo "  Debian, Ubuntu: $(awk '{print $2}' <<<"$rows" | sort -u | xargs)" >&2
  echo "  Fedora:         $(awk '{print $3}' <<<"$rows" | sort -u | xargs)" >&2
  echo "  Arch:           $(awk '{print $4}' <<<"$rows" | sort -u | xargs)" >&2
}

trireme_check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
    echo "CMake 3.25 or newer is needed and this is $version: install a newer one ('python3 -m pip install cmake' has it)." >&2
    return 2
  fi
}

# Install what is missing of the given sets. Tools of the full and nightly sets may stay missing: the tests that need them
# are skipped and say so.
trireme_install() {
  local rows names
  rows=$(trireme_missing "$@")
  if [ -n "$rows" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
      trireme_tell "$rows"
    elif [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
      trireme_tell "$rows"
      echo "As root: apt-get update && apt-get install --no-install-recommends $(awk '{print $2}' <<<"$rows" | xargs)" >&2
    else
      names=$(awk '{print $2}' <<<"$rows")
      # shellcheck disable=SC2086 # one word per package
      trireme_apt_install $names
    fi
    rows=$(trireme_missing "$@")
  fi
  if grep -qE '^(build|test) ' <<<"$rows"; then
    echo "Cannot go on without: $(grep -E '^(build|test) ' <<<"$rows" | awk '{print $2}' | xargs)" >&2
    return 2
  elif [ -n "$rows" ]; then
    echo "Going on without $(awk '{print $2}' <<<"$rows" | xargs): tests that need them are skipped."
  fi
  trireme_check_cmake
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  if [ $# = 0 ]; then set -- build test; fi
  for trireme_set in "$@"; do
    case $trireme_set in
    build | test | full | nightly) ;;
    *)
      echo "usage: scripts/install.sh [build] [test] [full] [nightly]" >&2
      exit 2
      ;;
    esac
  done
  trireme_install "$@"
fi
