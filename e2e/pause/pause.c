/* Does nothing, as process 1: it holds the namespaces of a pod (or of the whole test node), buries the orphans that
   end there, and ends at once on SIGTERM or SIGINT. Process 1 has no default signal actions, so all are spelled out. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
	(void)signal;
	_exit(0);
}

static void bury(int signal) {
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
}

int main(void) {
	struct sigaction ends = {.sa_handler = end};
	struct sigaction buries = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
	if (sigaction(SIGTERM, &ends, NULL) || sigaction(SIGINT, &ends, NULL) || sigaction(SIGCHLD, &buries, NULL)) {
		return 1;
	}
	bury(SIGCHLD); /* those that ended before the handler was there */
	for (;;) {
		pause();
	}
}
