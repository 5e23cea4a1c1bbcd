#include "steelyard/framework/tape_trace.h"

#include "steelyard/framework/module.h"

namespace steelyard {
namespace {

thread_local TapeTrace* listening = nullptr;

}  // namespace

TapeTrace::TapeTrace() : outer_(listening) { listening = this; }
TapeTrace::~TapeTrace() { listening = outer_; }

TapeScope::TapeScope(const std::string& name) : trace_(listening) {
  if (trace_ != nullptr) trace_->scopes_.push_back(&name);
}

TapeScope::~TapeScope() {
  if (trace_ != nullptr) trace_->scopes_.pop_back();
}

void trace_operation(const std::shared_ptr<Function>& function, const std::vector<Variable>& inputs,
                     const Variable& output) {
  if (listening == nullptr) return;
  TracedOperation operation{.module = {}, .function = function, .inputs = {}, .output = output};
  for (const std::string* scope : listening->scopes_) {
    operation.module = join_path(operation.module, *scope);
  }
  for (const Variable& input : inputs) {
    if (input.defined()) operation.inputs.push_back(input);
  }
  listening->operations_.push_back(std::move(operation));
}

}  // namespace steelyard
