// Command kube is the servers of a one-node Kubernetes, and kubectl, in one program.
//
// It does what the name it is called under says (a link to it, such as kubelet). One program means one link step and
// one set of Go packages on disk instead of six.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		serve(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		serve(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		serve(scheduler.NewSchedulerCommand())
	case "kubelet":
		serve(kubelet.NewKubeletCommand(context.Background()))
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		fmt.Fprintf(os.Stderr, "kube: called as %q; call it as etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl\n", name)
		os.Exit(2)
	}
}

func serve(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
