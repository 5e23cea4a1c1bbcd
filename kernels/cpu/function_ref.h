// A function that a caller hands down.
#pragma once

namespace steelyard::kernels {

template <class Signature>
class FunctionRef;

// Calls a function object that outlives it: what is written once for all callers takes it, where a
// template would be compiled for each.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class F>
  FunctionRef(const F& f)  // NOLINT(google-explicit-constructor): as a template's parameter
      : object_(&f), call_([](const void* object, Arguments... arguments) -> Result {
          return (*static_cast<const F*>(object))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(object_, arguments...); }

 private:
  const void* object_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace steelyard::kernels
