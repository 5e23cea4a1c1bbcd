/* A plugin of QEMU's user emulation: tells on stderr how many instructions the program has executed
 * whenever it calls getpriority(), which does nothing else and which nobody calls by the way. Exact
 * for one thread. Declares of QEMU's interface (version 1) what it calls, as Debian has no package
 * with the header. For 64-bit Arm, by the call's number.
 *
 *   cc -O2 -shared -fPIC benchmarks/count_instructions.c -o count.so && qemu-aarch64 -plugin
 * ./count.so PROGRAM */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t PluginId;
struct Block; /* of translated instructions */
typedef void (*WhenTranslated)(PluginId, struct Block*);
typedef void (*WhenCalled)(PluginId, unsigned processor, int64_t number, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

void qemu_plugin_register_vcpu_tb_trans_cb(PluginId id, WhenTranslated call);
void qemu_plugin_register_vcpu_tb_exec_inline(struct Block* block, int operation, void* to,
                                              uint64_t value);
size_t qemu_plugin_tb_n_insns(const struct Block* block);
void qemu_plugin_register_vcpu_syscall_cb(PluginId id, WhenCalled call);

int qemu_plugin_version = 1;
static uint64_t executed;

static void when_translated(PluginId id, struct Block* block) {
  enum { kAdd = 0 };
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, kAdd, &executed, qemu_plugin_tb_n_insns(block));
}

static void when_called(PluginId id, unsigned processor, int64_t number, uint64_t a, uint64_t b,
                        uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  enum { kGetPriority = 141 };
  (void)id, (void)processor, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
  if (number == kGetPriority) fprintf(stderr, "executed %" PRIu64 " instructions\n", executed);
}

int qemu_plugin_install(PluginId id, const void* info, int argc, char** argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, when_translated);
  qemu_plugin_register_vcpu_syscall_cb(id, when_called);
  return 0;
}
