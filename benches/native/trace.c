/* A library in front of NVML that notes the name of each call, and passes it on as it came.
 *
 * FUNCTIONS is a file that has NVML_FUNCTION(name, number) for each; DRIVER is the path of the library behind, TRACE that of the file
 * that the names are written to. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
#define NVML_FUNCTION(name, number) #name,
#include FUNCTIONS
#undef NVML_FUNCTION
};

static int function_not_found(void) { return 13; }

/* Notes the call, and says where it goes. */
__attribute__((used, visibility("hidden"))) void *note(unsigned long number) {
	static int trace = -1;
	static void *driver;
	if (trace < 0) {
		trace = open(TRACE, O_WRONLY | O_CREAT | O_APPEND, 0644);
		driver = dlopen(DRIVER, RTLD_NOW);
	}
	const char *name = names[number];
	char line[128];
	int length = strlen(name);
	memcpy(line, name, length);
	line[length] = '\n';
	if (write(trace, line, length + 1) < 0)
		_exit(1);
	void *function = dlsym(driver, name);
	return function ? function : (void *)function_not_found;
}

/* The arguments, all in registers, and the place where floating-point ones are counted are kept while the call is noted. */
__asm__(".text\n"
	"pass_on:\n"
	"	push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %rax\n"
	"	mov 56(%rsp), %rdi\n"
	"	sub $8, %rsp\n"
	"	call note\n"
	"	add $8, %rsp\n"
	"	mov %rax, %r11\n"
	"	pop %rax; pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\n"
	"	add $8, %rsp\n"
	"	jmp *%r11\n");

#define NVML_FUNCTION(name, number) \
	__asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n	push $" #number "\n	jmp pass_on\n");
#include FUNCTIONS
