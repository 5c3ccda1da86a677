#!/bin/sh
# Makes the two images that the Dockerfile starts from, out of Debian's packages: for a machine that reaches Debian and
# no image registry, or that wants to know each byte of its base. Needs root, mmdebstrap and buildah.
#
#   deploy/image/roots.sh                # localhost/pidgate-build and localhost/pidgate-base
#   buildah build --format docker --isolation chroot --build-arg BUILD=localhost/pidgate-build \
#     --build-arg BASE=localhost/pidgate-base -t pidgate .
#
# BUILDAH: buildah with options of its own, such as --root.
set -eu
buildah=${BUILDAH:-buildah}
suite=bookworm  # its Python is 3.11
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

import() {
  container=$($buildah from scratch)
  $buildah add --quiet "$container" "$work/$1.tar" / >/dev/null
  $buildah commit --quiet --rm "$container" "localhost/pidgate-$1" >/dev/null
  echo "localhost/pidgate-$1"
}

# Files alone, no configuration scripts: a compiler and Python's headers need none.
mmdebstrap --quiet --variant=extract \
  --include=coreutils,dash,libc-bin,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates "$suite" "$work/build"
cd "$work/build"
find usr/share/ca-certificates -name '*.crt' -exec cat {} + > etc/ssl/certs/ca-certificates.crt
test -e bin/sh || ln -s dash bin/sh
test -e usr/bin/cc || ln -s gcc usr/bin/cc
printf 'root:x:0:0:root:/root:/bin/sh\n' > etc/passwd
tar -cf "$work/build.tar" --numeric-owner .
cd /
import build

# Python's libraries and what they need: no package manager, no shell.
mmdebstrap --quiet --variant=extract \
  --include=base-files,netbase,tzdata,ca-certificates,libc6,libgcc-s1,libstdc++6,libpython3.11-stdlib,python3.11-minimal \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  "$suite" "$work/base"
cd "$work/base"
find usr/share/ca-certificates -name '*.crt' -exec cat {} + > etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0:root:/:/nonexistent\npidgate:x:10001:10001:pidgate:/var/lib/pidgate:/nonexistent\n' > etc/passwd
printf 'root:x:0:\npidgate:x:10001:\n' > etc/group
# Packages that others only need to be configured.
rm -rf bin/* sbin/* usr/sbin/* var/lib/dpkg/info var/cache/* var/log/* usr/share/perl* usr/lib/*-linux-gnu/perl* \
  usr/share/debconf usr/share/bug usr/share/lintian usr/libexec etc/update-motd.d etc/logrotate.d usr/share/man usr/share/locale usr/lib/*-linux-gnu/gconv etc/dpkg etc/cron.daily
find usr/bin -mindepth 1 ! -name 'python3*' -delete
tar -cf "$work/base.tar" --numeric-owner .
cd /
import base
