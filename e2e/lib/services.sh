# shellcheck shell=bash disable=SC2034,SC2054
# The services of the node: their files and command lines. Sourced, not run. Paths are those inside the node.

PKI=$STATE/pki
CERTS=/etc/kubernetes

# Sets COMMAND to the command line of a service.
service_command() {
	local bin
	bin=$(bin_dir)
	case $1 in
	etcd)
		COMMAND=("$bin/etcd" --data-dir "$STATE/etcd" --unsafe-no-fsync
			--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379
			--listen-peer-urls http://127.0.0.1:2380)
		;;
	kube-apiserver)
		# Port 443 on all addresses: the node has its own network, and pods find the server at 10.96.0.1:443.
		COMMAND=("$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379
			--bind-address=0.0.0.0 --secure-port=443 --advertise-address="$NODE_IP" --endpoint-reconciler-type=none
			--service-cluster-ip-range=10.96.0.0/16 --allow-privileged=true
			--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
			--client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key"
			--kubelet-preferred-address-types=InternalIP
			--kubelet-client-certificate="$PKI/apiserver-kubelet.crt" --kubelet-client-key="$PKI/apiserver-kubelet.key"
			--service-account-issuer=https://kubernetes.default.svc
			--service-account-key-file="$PKI/service-account.pub" --service-account-signing-key-file="$PKI/service-account.key"
			--audit-policy-file="$STATE/audit-policy.yaml" --audit-log-path="$STATE/logs/audit.log" --audit-log-maxsize=200)
		;;
	kube-controller-manager)
		COMMAND=("$bin/kube-controller-manager" --leader-elect=false --bind-address=127.0.0.1
			--kubeconfig="$STATE/controller-manager.kubeconfig" --use-service-account-credentials=true
			--root-ca-file="$PKI/ca.crt" --service-account-private-key-file="$PKI/service-account.key"
			--cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key")
		;;
	kube-scheduler)
		COMMAND=("$bin/kube-scheduler" --leader-elect=false --bind-address=127.0.0.1
			--kubeconfig="$STATE/scheduler.kubeconfig")
		;;
	containerd)
		# All at its usual places, so that what edits /etc/containerd/config.toml on real nodes works here.
		COMMAND=("$(containerd_dir)/containerd")
		;;
	kubelet)
		COMMAND=("$bin/kubelet" --config=/var/lib/kubelet/config.yaml --kubeconfig="$CERTS/kubelet.conf"
			--hostname-override="$NODE_NAME" --node-ip="$NODE_IP")
		;;
	*) die "there is no service \`$1\`; there are ${SERVICES[*]}" ;;
	esac
}

# certificate NAME SUBJECT EXTENSIONS…: a key and a certificate of the cluster's authority.
certificate() {
	local name=$1 subject=$2
	shift 2
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$PKI/$name.key" \
		-subj "$subject" -out "$PKI/$name.csr" 2>/dev/null
	openssl x509 -req -in "$PKI/$name.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -days 365 \
		-set_serial "0x$(openssl rand -hex 8)" -extfile <(printf '%s\n' "$@") -out "$PKI/$name.crt" 2>/dev/null
}

write_pki() {
	(umask 077 && mkdir -p "$PKI")
	openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=gpu-e2e \
		-keyout "$PKI/ca.key" -out "$PKI/ca.crt" 2>/dev/null
	certificate apiserver /CN=kube-apiserver extendedKeyUsage=serverAuth \
		"subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:$NODE_IP,IP:$API_SERVICE_IP"
	certificate apiserver-kubelet /O=system:masters/CN=apiserver-kubelet extendedKeyUsage=clientAuth
	certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
	certificate controller-manager /CN=system:kube-controller-manager extendedKeyUsage=clientAuth
	certificate scheduler /CN=system:kube-scheduler extendedKeyUsage=clientAuth
	certificate kubelet "/O=system:nodes/CN=system:node:$NODE_NAME" extendedKeyUsage=clientAuth
	openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/service-account.key"
	openssl ec -in "$PKI/service-account.key" -pubout -out "$PKI/service-account.pub" 2>/dev/null
}

# kubeconfig NAME: with the certificates inside, so that it can be mounted or copied alone.
kubeconfig() {
	cat <<-EOF_CONFIG
		apiVersion: v1
		kind: Config
		clusters:
		- name: gpu-e2e
		  cluster:
		    server: https://$NODE_IP:443
		    certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")
		users:
		- name: $1
		  user:
		    client-certificate-data: $(base64 -w0 "$PKI/$1.crt")
		    client-key-data: $(base64 -w0 "$PKI/$1.key")
		contexts:
		- name: $1
		  context: {cluster: gpu-e2e, user: $1}
		current-context: $1
	EOF_CONFIG
}

# Every request leaves one line with who, what and the answer's code: tests read from it who wrote nothing.
write_audit_policy() {
	cat >"$STATE/audit-policy.yaml" <<-'EOF_POLICY'
		apiVersion: audit.k8s.io/v1
		kind: Policy
		omitStages: [RequestReceived]
		rules:
		- level: Metadata
	EOF_POLICY
}

write_kubelet_config() {
	cat >"$STATE/kubelet/config.yaml" <<-EOF_KUBELET
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication:
		  anonymous: {enabled: false}
		  webhook: {enabled: true}
		  x509: {clientCAFile: $PKI/ca.crt}
		authorization: {mode: Webhook}
		address: $NODE_IP
		healthzBindAddress: 127.0.0.1
		containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
		# Where there is only cgroup v1, it is used; Kubernetes 1.35 and later refuse it otherwise.
		failCgroupV1: false
		cgroupDriver: cgroupfs
		cgroupRoot: /$CGROUP
		enforceNodeAllocatable: [pods]
		failSwapOn: false
		makeIPTablesUtilChains: false
		resolvConf: /etc/resolv.conf
		# Quick, so that tests see changes soon.
		nodeStatusUpdateFrequency: 2s
		syncFrequency: 10s
		# A full disk of the machine must not evict a test's pods.
		evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}
		imageGCHighThresholdPercent: 100
		imageGCLowThresholdPercent: 99
	EOF_KUBELET
}

write_containerd_config() {
	local bin
	bin=$(bin_dir)
	if [[ $CONTAINERD == 1.* ]]; then containerd_config_2; else containerd_config_3; fi >"$STATE/containerd-config.toml"
}

# Without CAP_SYS_RESOURCE nobody may lower an oom score, and runc ends on the attempt: hence `restrict_oom_score_adj`.
containerd_config_3() {
	cat <<-EOF_CONTAINERD
		version = 3
		imports = ["/etc/containerd/conf.d/*.toml"]

		[plugins."io.containerd.cri.v1.images".pinned_images]
		  sandbox = "localhost/gpu-e2e/pause:test"

		[plugins."io.containerd.cri.v1.runtime"]
		  restrict_oom_score_adj = $(lacks_sys_resource && echo true || echo false)

		  [plugins."io.containerd.cri.v1.runtime".cni]
		    bin_dirs = ["$bin"]
		    conf_dir = "/etc/cni/net.d"
	EOF_CONTAINERD
	containerd_runtimes io.containerd.cri.v1.runtime
}

containerd_config_2() {
	cat <<-EOF_CONTAINERD
		version = 2

		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "localhost/gpu-e2e/pause:test"
		  restrict_oom_score_adj = $(lacks_sys_resource && echo true || echo false)

		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "$bin"
		    conf_dir = "/etc/cni/net.d"
	EOF_CONTAINERD
	containerd_runtimes io.containerd.grpc.v1.cri
}

# containerd_runtimes PLUGIN: runc, as the CRI plugin of that name has it.
containerd_runtimes() {
	cat <<-EOF_CONTAINERD

		  [plugins."$1".containerd]
		    default_runtime_name = "runc"

		    [plugins."$1".containerd.runtimes.runc]
		      runtime_type = "io.containerd.runc.v2"

		      [plugins."$1".containerd.runtimes.runc.options]
		        BinaryName = "$bin/runc"
		        SystemdCgroup = false
	EOF_CONTAINERD
}

lacks_sys_resource() {
	local effective
	effective=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
	(((0x$effective >> 24 & 1) == 0))
}

# Pods reach each other and the node over one veth pair each; without a network the node never gets Ready.
write_cni_config() {
	cat >"$STATE/cni.conflist" <<-'EOF_CNI'
		{
		  "cniVersion": "1.0.0",
		  "name": "gpu-e2e",
		  "plugins": [{
		    "type": "ptp",
		    "ipMasq": false,
		    "ipam": {
		      "type": "host-local",
		      "ranges": [[{"subnet": "10.45.0.0/24"}]],
		      "routes": [{"dst": "0.0.0.0/0"}]
		    }
		  }]
		}
	EOF_CNI
}
