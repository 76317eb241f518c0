# shellcheck shell=bash disable=SC2034
# Paths and small functions that every e2e script shares. Sourced, not run.

E2E=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPO=$(dirname "$E2E")

# Everything of one cluster is in this folder; another value gives a second, independent cluster.
STATE=${GPU_E2E_STATE:-/run/gpu-e2e}
CACHE=${GPU_E2E_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpu-e2e}
# Debian keeps ip, mount helpers and friends here, and a service's PATH may lack it.
export PATH=$PATH:/usr/sbin:/sbin

NODE_NAME=gpu-e2e
NODE_IP=10.44.0.1
# The first address of the service range: what a pod's KUBERNETES_SERVICE_HOST says.
API_SERVICE_IP=10.96.0.1
# One cgroup per cluster, so that it can be removed without looking at anybody else's.
CGROUP=gpu-e2e${STATE//[!A-Za-z0-9]/-}
SERVICES=(etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet)
PROGRAMS=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl
	containerd containerd-shim-runc-v2 ctr runc ptp host-local loopback busybox pause)
# Which containerd the node runs: the newest, or 1.6, which has no CDI.
CONTAINERD=${GPU_E2E_CONTAINERD:-}

say() { printf 'e2e: %s\n' "$*" >&2; }
die() {
	say "error: $*"
	exit 1
}

check_state_path() {
	[[ $STATE == /*/* && $STATE != *..* && $STATE != */ ]] ||
		die "GPU_E2E_STATE is \`$STATE\`: it has to be an absolute path below a top-level folder, because e2e/down removes it"
	# A unix socket's path holds 107 bytes, and the longest one below the state folder needs about 40.
	((${#STATE} <= 60)) || die "GPU_E2E_STATE is \`$STATE\`: longer than 60 characters, too long for unix sockets"
}

need_outside() {
	[[ -z ${GPU_E2E_NODE:-} ]] || die "$(basename "$0") runs on the machine, not inside the node (e2e/cluster exec)"
}

need_root() { ((EUID == 0)) || die "$(basename "$0") needs root: it makes namespaces, cgroups and containers"; }

# The folder of the programs, once `programs` has run.
bin_dir() { cat "$STATE/bin-dir"; }

# The folder of the node's containerd, which may be another.
containerd_dir() { cat "$STATE/containerd-dir"; }

# start_time PID: when the process started, in clock ticks since boot; with the pid it names one process for good.
start_time() {
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
	# The second field is the program's name in brackets and may hold spaces; after it, the start time is the 20th.
	# shellcheck disable=SC2086
	set -- ${stat##*) }
	echo "${20}"
}

# Prints the pid of the node's process 1, if this harness's node is alive.
node_pid() {
	local pid started
	[[ -f $STATE/node.pid ]] && read -r pid started <"$STATE/node.pid" || return 1
	[[ $(start_time "$pid") == "$started" ]] || return 1
	echo "$pid"
}

# in_node CMD…: runs a command inside the node's namespaces, in the same folder, with its PATH and KUBECONFIG.
in_node() {
	local pid
	if [[ -n ${GPU_E2E_NODE:-} ]]; then # we are inside already, as the tests are
		"$@"
		return
	fi
	pid=$(node_pid) || die "no node is running in \`$STATE\`: start one with e2e/up"
	# nsenter goes to `/` of the new mount namespace, so the shell goes back to where the caller was.
	# shellcheck disable=SC2016
	nsenter --target "$pid" --mount --net --pid -- \
		env PATH="$(containerd_dir):$(bin_dir):$PATH" KUBECONFIG="$STATE/admin.kubeconfig" \
		GPU_E2E_STATE="$STATE" GPU_E2E_NODE="$NODE_NAME" \
		sh -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' sh "$PWD" "$@"
}

# For this harness's own short questions; a server that hangs must not hold them up.
kubectl() { in_node timeout 15 kubectl "$@"; }

# wait_until SECONDS WHAT CMD…: polls until the command succeeds; a service that ends meanwhile is an error at once.
wait_until() {
	local seconds=$1 what=$2 deadline service
	deadline=$((SECONDS + seconds))
	shift 2
	until "$@" >"$STATE/last-poll" 2>&1; do
		for service in "${SERVICES[@]}"; do
			[[ ! -e $STATE/ended/$service ]] || die "$service ended while waiting for $what; $(tail_of "$service")"
		done
		((SECONDS < deadline)) || die "not within $seconds s: $what; the last answer was: $(tail -n 3 "$STATE/last-poll")"
		sleep 0.1
	done
}

tail_of() { printf 'the end of %s:\n%s' "$STATE/logs/$1.log" "$(tail -n 15 "$STATE/logs/$1.log" 2>/dev/null || echo '(no log)')"; }
