# What: packages with the names, versions and dependencies of NVIDIA's driver in Ubuntu's archive and
#       in NVIDIA's repository, with small contents of our own. They are stand-ins: no driver is in them.
# Why:  the real ones cannot be had on every machine; what is decided by names, dependencies, signatures
#       and files can be shown with these.
# How:  'load ../lib/driver-standin' after repo; standin_ubuntu REPO KERNEL KEYS, standin_nvidia REPO KERNEL,
#       standin_toolkit REPO, standin_image.
# shellcheck shell=bash

export STANDIN_VERSION=580.126.09
export STANDIN_REVISION=0ubuntu0.24.04.1

# standin_keys DIR: a key to sign modules with, as a distribution would have one.
standin_keys() {
	mkdir -p "$1"
	openssl req -new -x509 -newkey rsa:2048 -nodes -days 3650 -sha256 -batch \
		-subj '/CN=Stand-in kernel module signing' -keyout "$1/module.key" -out "$1/module.crt" 2>/dev/null
}

# standin_module NAME VERSION KERNEL FILE: an object with all that modinfo(8) shows of a module.
standin_module() {
	local name=$1 version=$2 kernel=$3 file=$4 firmware='' alias=''
	if [ "$name" = nvidia ]; then
		firmware="firmware=nvidia/$version/gsp_ga10x.bin\\0firmware=nvidia/$version/gsp_tu10x.bin\\0"
		alias='alias=pci:v000010DEd*sv*sd*bc03sc02i00*\0'
	fi
	cat >"$file.c" <<-END
		static const char info[] __attribute__((section(".modinfo"), used)) =
			"version=$version\0license=Dual MIT/GPL\0$alias$firmware"
			"name=$name\0vermagic=$kernel SMP preempt mod_unload modversions \0";
	END
	gcc -c -fno-asynchronous-unwind-tables -o "$file" "$file.c"
	rm "$file.c"
}

# standin_sign FILE KEYS: what the kernel's scripts/sign-file appends: a detached PKCS#7 message without
# certificates and attributes, struct module_signature, the magic line.
standin_sign() {
	local size
	openssl cms -sign -binary -noattr -nocerts -outform DER -md sha256 -signer "$2/module.crt" \
		-inkey "$2/module.key" -in "$1" -out "$1.p7s"
	size=$(stat -c %s "$1.p7s")
	{
		cat "$1.p7s"
		# no algorithm, no hash, PKEY_ID_PKCS7; lengths of names; 3 bytes of padding; the size
		printf '\x00\x00\x02\x00\x00\x00\x00\x00'
		printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((size >> 24 & 255)) $((size >> 16 & 255)) \
			$((size >> 8 & 255)) $((size & 255)))"
		printf '~Module signature appended~\n'
	} >>"$1"
	rm "$1.p7s"
}

# A directory for the files of one package, empty.
standin_tree() {
	rm -rf "$STANDIN_WORK"
	mkdir -p "$STANDIN_WORK/DEBIAN"
	echo "$STANDIN_WORK"
}

standin_script() { # tree, name, text
	printf '#!/bin/sh\nset -e\n%s\n' "$3" >"$1/DEBIAN/$2"
	chmod 0755 "$1/DEBIAN/$2"
}

standin_libraries() { # tree, version
	local dir=$1/usr/lib/x86_64-linux-gnu library
	mkdir -p "$dir"
	for library in libcuda libnvidia-ml; do
		echo "int standin_$RANDOM;" | gcc -shared -nostdlib -Wl,-soname,"$library.so.1" -x c - -o "$dir/$library.so.$2"
		ln -s "$library.so.$2" "$dir/$library.so.1"
	done
}

standin_firmware() { # tree, version
	local file
	mkdir -p "$1/usr/lib/firmware/nvidia/$2"
	for file in gsp_ga10x.bin gsp_tu10x.bin; do
		echo "stand-in" >"$1/usr/lib/firmware/nvidia/$2/$file"
	done
}

standin_smi() { # tree
	mkdir -p "$1/usr/bin"
	printf '#!/bin/sh\necho "stand-in for nvidia-smi" >&2\nexit 9\n' >"$1/usr/bin/nvidia-smi"
	chmod 0755 "$1/usr/bin/nvidia-smi"
}

# standin_dkms TREE VERSION: four modules that compile, registered as Ubuntu's packages do it.
standin_dkms() {
	local dir=$1/usr/src/nvidia-$2 name n=0
	mkdir -p "$dir"
	{
		printf 'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="%s"\nAUTOINSTALL="yes"\n' "$2"
		# DKMS's variables, not ours
		# shellcheck disable=SC2016
		printf 'MAKE[0]="make -C ${kernel_source_dir} M=${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build modules"\nCLEAN="true"\n'
		for name in nvidia nvidia-uvm nvidia-modeset nvidia-drm; do
			printf 'BUILT_MODULE_NAME[%d]="%s"\nDEST_MODULE_LOCATION[%d]="/kernel/drivers/char/drm"\n' $n $name $n
			n=$((n + 1))
		done
	} >"$dir/dkms.conf"
	echo 'obj-m := nvidia.o nvidia-uvm.o nvidia-modeset.o nvidia-drm.o' >"$dir/Makefile"
	for name in nvidia nvidia-uvm nvidia-modeset nvidia-drm; do
		printf '#include <linux/module.h>\nMODULE_DESCRIPTION("stand-in");\nMODULE_LICENSE("Dual MIT/GPL");\nMODULE_VERSION("%s");\n' "$2" \
			>"$dir/$name.c"
	done
	cat >>"$dir/nvidia.c" <<-END
		MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc02i00*");
		MODULE_FIRMWARE("nvidia/$2/gsp_ga10x.bin");
		MODULE_FIRMWARE("nvidia/$2/gsp_tu10x.bin");
	END
	standin_script "$1" postinst "case \$1 in configure) /usr/lib/dkms/common.postinst nvidia $2 /usr/share/nvidia amd64 \"\$2\" ;; esac"
	standin_script "$1" prerm "case \$1 in remove|upgrade|deconfigure) dkms remove -m nvidia -v $2 --all ;; esac"
}

# standin_prebuilt REPO KERNEL KEYS: signed modules for just this kernel; the package has the kernel's
# version, the driver's stands in a dependency.
standin_prebuilt() {
	local repo=$1 kernel=$2 keys=$3 tree dir name
	tree=$(standin_tree)
	dir=$tree/usr/lib/modules/$kernel/kernel/nvidia-580srv-open
	mkdir -p "$dir"
	for name in nvidia nvidia_uvm nvidia_modeset nvidia_drm; do
		standin_module "$name" "$STANDIN_VERSION" "$kernel" "$dir/${name/_/-}.ko"
		standin_sign "$dir/${name/_/-}.ko" "$keys"
	done
	standin_script "$tree" postinst "depmod -a $kernel"
	standin_script "$tree" postrm "case \$1 in remove|purge) [ ! -d /lib/modules/$kernel ] || depmod -a $kernel ;; esac"
	repo_deb "$repo" "linux-modules-nvidia-580-server-open-$kernel" 6.8.0-31.31+1 \
		"Depends: nvidia-kernel-common-580-server (<= $STANDIN_VERSION-1), nvidia-kernel-common-580-server (>= $STANDIN_VERSION)" \
		-- "$tree"
}

# standin_forward REPO FROM TO VERSION: the transitional packages of one branch.
standin_forward() {
	local name
	for name in nvidia-utils-@-server nvidia-compute-utils-@-server nvidia-headless-no-dkms-@-server \
		nvidia-headless-no-dkms-@-server-open nvidia-dkms-@-server nvidia-dkms-@-server-open; do
		repo_deb "$1" "${name/@/$2}" "$4" "Depends: ${name/@/$3}" \
			"Description: transitional package, stand-in of the tests of gpuimg"
	done
}

# The packages of branch 580 for servers, whole.
standin_580() { # repo
	local repo=$1 full=$STANDIN_VERSION-$STANDIN_REVISION tree
	tree=$(standin_tree)
	standin_firmware "$tree" "$STANDIN_VERSION"
	repo_deb "$repo" "nvidia-firmware-580-server-$STANDIN_VERSION" "$full" -- "$tree"
	repo_deb "$repo" nvidia-kernel-common-580-server "$full" \
		"Depends: nvidia-firmware-580-server-$STANDIN_VERSION (= $full)"
	tree=$(standin_tree)
	standin_libraries "$tree" "$STANDIN_VERSION"
	repo_deb "$repo" libnvidia-compute-580-server "$full" \
		"Depends: libc6, nvidia-kernel-common-580-server (= $full)" -- "$tree"
	tree=$(standin_tree)
	standin_smi "$tree"
	repo_deb "$repo" nvidia-utils-580-server "$full" "Depends: libnvidia-compute-580-server" -- "$tree"
	repo_deb "$repo" nvidia-compute-utils-580-server "$full" "Depends: libnvidia-compute-580-server"
	repo_deb "$repo" nvidia-headless-no-dkms-580-server-open "$full" \
		"Depends: libnvidia-compute-580-server (= $full), nvidia-compute-utils-580-server (= $full), nvidia-kernel-common-580-server (= $full)"
	tree=$(standin_tree)
	standin_dkms "$tree" "$STANDIN_VERSION"
	repo_deb "$repo" nvidia-dkms-580-server-open "$full" \
		"Depends: dkms, nvidia-kernel-common-580-server (= $full)" -- "$tree"
}

# standin_ubuntu REPO KERNEL KEYS: an archive: 580 whole, with prebuilt modules for KERNEL only; 570 and
# 535 handed on to it, 535 over 570; 590 by its plain names, without prebuilt modules; a fabric manager
# of another version.
standin_ubuntu() {
	local repo=$1 name
	export REPO_COMPONENT=restricted STANDIN_WORK=$1.work
	standin_580 "$repo"
	standin_prebuilt "$repo" "$2" "$3"
	standin_forward "$repo" 570 580 "$STANDIN_VERSION-$STANDIN_REVISION"
	standin_forward "$repo" 535 570 535.309.01-0ubuntu0.24.04.2
	for name in nvidia-utils-590 nvidia-compute-utils-590 nvidia-headless-no-dkms-590-open nvidia-dkms-590-open; do
		repo_deb "$repo" "$name" 590.48.01-0ubuntu0.24.04.1
	done
	repo_deb "$repo" nvidia-fabricmanager-580 580.95.05-1
	repo_deb "$repo" nvidia-fabricmanager-590 590.48.01-1
	REPO_COMPONENT=main repo_deb "$repo" hello-standin 1.0
	rm -rf "$STANDIN_WORK"
	unset REPO_COMPONENT
}

# standin_nvidia REPO KERNEL: NVIDIA's names for Ubuntu since 590, two branches under the same names; and
# headers for KERNEL that are good for a plan only.
standin_nvidia() {
	local repo=$1 version tree
	export STANDIN_WORK=$1.work
	for version in 595.71.05 610.43.02; do
		tree=$(standin_tree)
		standin_libraries "$tree" "$version"
		standin_smi "$tree"
		repo_deb "$repo" libnvidia-compute "$version-1ubuntu1" "Depends: nvidia-kernel-common (>= 595)" -- "$tree"
		tree=$(standin_tree)
		standin_firmware "$tree" "$version"
		repo_deb "$repo" nvidia-firmware "$version-1ubuntu1" -- "$tree"
		repo_deb "$repo" nvidia-kernel-common "$version-1ubuntu1" "Depends: nvidia-firmware (>= 595)"
		repo_deb "$repo" nvidia-headless-no-dkms-open "$version-1ubuntu1" "Depends: libnvidia-compute (>= 595)"
		tree=$(standin_tree)
		standin_dkms "$tree" "$version"
		repo_deb "$repo" nvidia-dkms-open "$version-1ubuntu1" "Depends: dkms, nvidia-kernel-common (>= 595)" -- "$tree"
	done
	repo_deb "$repo" "linux-headers-$2" 6.8.0-31.31
	rm -rf "$STANDIN_WORK"
}

# standin_toolkit REPO: a container toolkit that does not go with branch 580 of the archive.
standin_toolkit() {
	local tree
	export STANDIN_WORK=$1.work
	repo_deb "$1" libnvidia-container1 1.18.0-1
	tree=$(standin_tree)
	mkdir -p "$tree/usr/bin"
	printf '#!/bin/sh\nexit 0\n' >"$tree/usr/bin/nvidia-container-runtime"
	chmod 0755 "$tree/usr/bin/nvidia-container-runtime"
	repo_deb "$1" nvidia-container-toolkit 1.18.0-1 'Depends: libnvidia-container1' \
		'Conflicts: nvidia-compute-utils-580-server' -- "$tree"
	rm -rf "$STANDIN_WORK"
}

# standin_image BASE KEY FILE: a raw copy of the base that trusts the archive's key.
standin_image() {
	local start
	qemu-img convert -q -O raw "$1" "$3"
	start=$(($(sfdisk -d "$3" 2>/dev/null | awk -F'[=,]' '/1 : start/ && !done { print $2 + 0; done = 1 }') * 512))
	debugfs -w -R "write $2 /usr/share/keyrings/ubuntu-archive-keyring.gpg" "$3?offset=$start" 2>/dev/null >&2
}
