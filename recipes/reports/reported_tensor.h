// A measured tensor as the report shows it.
#pragma once

#include "steelyard/recipes/reports/run_report.h"

namespace steelyard {

// `quantizes`: whether its quantizer is on.
ReportedTensor reported(const qat::MeasuredTensor& tensor, bool quantizes);

}  // namespace steelyard
