#include "steelyard/qat/model/faults.h"

#include <charconv>
#include <stdexcept>
#include <utility>

#include "steelyard/qat/model/measure.h"
#include "steelyard/qat/model/qat_model.h"

namespace steelyard::qat {
namespace {

std::string shortest(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

using Switches = std::vector<std::shared_ptr<bool>>;

// Without names, because a callback asks in every step.
void add_switches(const Module& module, Switches& found) {
  if (const auto* prepared = dynamic_cast<const QatModel*>(&module)) {
    found.push_back(prepared->fault_errors());
  }
  for (const auto& child : module.children()) add_switches(**child, found);
}

Switches switches_in(const Module& model) {
  Switches found;
  add_switches(model, found);
  return found;
}

}  // namespace

std::optional<std::string> take_fault(const std::vector<NamedQuantizer>& quantizers) {
  for (const NamedQuantizer& entry : quantizers) {
    if (entry.quantizer == nullptr) {
      throw std::invalid_argument("[take_fault] expected a quantizer, got null for '" + entry.name +
                                  "'");
    }
    const Faults faults = entry.quantizer->take_faults();
    if (faults.non_finite > 0) {
      return std::to_string(faults.non_finite) + " non-finite values reached the quantizer " +
             entry.name;
    }
    if (faults.overflow) {
      return owner_of_quantizer(entry.name) + ", channel " +
             std::to_string(faults.overflow->channel) + ": the bias " +
             shortest(faults.overflow->bias) +
             " and the products it is added to can overflow int32; with these scales its "
             "magnitude may be at most " +
             shortest(faults.overflow->limit) +
             ". Lower the learning rate, let biases decay, or give the layer's weights or input "
             "fewer bits";
    }
  }
  return std::nullopt;
}

void set_fault_errors(Module& model, bool on) {
  const Switches switches = switches_in(model);
  if (switches.empty()) {
    throw std::invalid_argument("[set_fault_errors] expected a model that prepare() made, got " +
                                model.type_name());
  }
  for (const auto& is_on : switches) *is_on = on;
}

FaultErrorsOff::FaultErrorsOff(Module& model, Counted counted) {
  for (auto& is_on : switches_in(model)) {
    const bool was_on = std::exchange(*is_on, false);
    switches_.push_back({std::move(is_on), was_on});
  }
  if (counted == Counted::kDropped) dropped_ = named_quantizers(model);
}

FaultErrorsOff::~FaultErrorsOff() {
  for (const Switch& of_model : switches_) *of_model.on = of_model.was_on;
  try {
    for (const NamedQuantizer& entry : dropped_) entry.quantizer->take_faults();
  } catch (const std::exception&) {
    // A failed GPU stays failed: the exception that is under way, or the next call, says so.
  }
}

}  // namespace steelyard::qat
