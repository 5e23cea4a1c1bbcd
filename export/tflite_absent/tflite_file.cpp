#include <stdexcept>

#include "steelyard/export/tflite/tflite_model.h"

namespace steelyard::deploy {

bool can_write_tflite() { return false; }

std::string tflite_bytes(const TfliteModel&) {
  throw std::runtime_error("export: built without TFLite: flatbuffers was not found");
}

}  // namespace steelyard::deploy
