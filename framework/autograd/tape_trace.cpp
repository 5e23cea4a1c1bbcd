#include "steelyard/framework/autograd/tape_trace.h"

#include "steelyard/framework/autograd/module.h"

namespace steelyard {
namespace {

thread_local TapeTrace* listening = nullptr;
thread_local OutputWatch* watching = nullptr;
thread_local std::vector<const std::string*> scopes;  // names of the slots being called

}  // namespace

TapeTrace::TapeTrace() : first_scope_(scopes.size()), outer_(listening) { listening = this; }
TapeTrace::~TapeTrace() { listening = outer_; }

OutputWatch::OutputWatch(See see)
    : see_(std::move(see)), first_scope_(scopes.size()), outer_(watching) {
  watching = this;
}
OutputWatch::~OutputWatch() { watching = outer_; }

TapeScope::TapeScope(const std::string& name) { scopes.push_back(&name); }
TapeScope::~TapeScope() { scopes.pop_back(); }

std::string module_path(std::size_t from) {
  std::string path;
  for (std::size_t i = from; i < scopes.size(); ++i) path = join_path(path, *scopes[i]);
  return path;
}

void trace_operation(const std::shared_ptr<Function>& function, const std::vector<Variable>& inputs,
                     const Variable& output) {
  if (listening == nullptr) return;
  TracedOperation operation{.module = module_path(listening->first_scope_),
                            .function = function,
                            .inputs = {},
                            .output = output};
  for (const Variable& input : inputs) {
    if (input.defined()) operation.inputs.push_back(input);
  }
  listening->operations_.push_back(std::move(operation));
}

void watch_output(const Variable& output) {
  if (watching != nullptr) watching->see_(module_path(watching->first_scope_), output);
}

}  // namespace steelyard
