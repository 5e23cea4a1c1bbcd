// A trace of the tape: every recorded operation with its variables and the module that called it;
// and a look at what every module gives.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// One recorded operation.
struct TracedOperation {
  std::string module;  // path of the innermost slot around it: "layer1.0.conv1"
  std::shared_ptr<const Function> function;
  std::vector<Variable> inputs;  // in the order of function->inputs(): undefined ones left out
  Variable output;
};

// While one lives, operations recorded on this thread are kept, in order. Operations on variables
// that require no gradient leave no record: a trace of a whole model starts at an input that does.
// Traces nest; only the innermost listens.
class TapeTrace {
 public:
  TapeTrace();
  ~TapeTrace();
  TapeTrace(const TapeTrace&) = delete;
  TapeTrace& operator=(const TapeTrace&) = delete;

  const std::vector<TracedOperation>& operations() const { return operations_; }

 private:
  friend class TapeScope;
  friend void trace_operation(const std::shared_ptr<Function>&, const std::vector<Variable>&,
                              const Variable&);
  std::vector<TracedOperation> operations_;
  std::size_t first_scope_;  // slots that were being called before do not count
  TapeTrace* outer_;
};

// While one lives, slots called on this thread show what their modules give, recorded or not, parts
// before what holds them. Watches nest; only the innermost sees anything.
class OutputWatch {
 public:
  using See = std::function<void(const std::string& module, const Variable& output)>;
  explicit OutputWatch(See see);
  ~OutputWatch();
  OutputWatch(const OutputWatch&) = delete;
  OutputWatch& operator=(const OutputWatch&) = delete;

 private:
  friend void watch_output(const Variable&);
  See see_;
  std::size_t first_scope_;  // slots that were being called before do not count
  OutputWatch* outer_;
};

// A slot's call: operations recorded while it lives are named after it. `name` must outlive it.
class TapeScope {
 public:
  explicit TapeScope(const std::string& name);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;
};

// Path of the slots that this thread is calling, outermost first, without the first `from`.
std::string module_path(std::size_t from = 0);

// Called by record(); does nothing without a TapeTrace on this thread.
void trace_operation(const std::shared_ptr<Function>& function, const std::vector<Variable>& inputs,
                     const Variable& output);

// Called by slots, in their scope; does nothing without an OutputWatch on this thread.
void watch_output(const Variable& output);

}  // namespace steelyard
