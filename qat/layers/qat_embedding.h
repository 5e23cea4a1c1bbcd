// Table lookup with quantized rows.
#pragma once

#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

// An Embedding whose table has codes, with a scale for each row or one for all. Its outputs are
// those codes as floats: the numbers of rows that it reads have no codes, and no quantizer of its
// own rounds what it gives.
class QatEmbedding : public QuantizedLayer {
 public:
  QatEmbedding(const Embedding& layer, const FormRequest& request);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatEmbedding"; }
  std::string description() const override;

 private:
  EmbeddingOptions options_;
};

QuantizedForm embedding_form();

}  // namespace steelyard::qat
