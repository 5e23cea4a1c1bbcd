// The part of a report about classes: scores, confusion matrix and the worst predictions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/framework/train/evaluate.h"

namespace steelyard {

struct ReportedClass {
  std::string name;
  ClassScores scores;
};

// A test sample whose class the model finds least likely.
struct ReportedMistake {
  std::string sample;
  std::string label, predicted;
  double chance = 0;  // of the label's class
  std::string png;    // the image as evaluation sees it; empty where there is none
};

struct ClassReport {
  std::string model;  // whose predictions these are
  std::vector<ReportedClass> classes = {};
  std::vector<std::int64_t> confusion = {};  // [label, predicted], of one class for each sample
  std::vector<ReportedMistake> worst = {};
};

// The report on a dataset with classes or labels; empty for other datasets.
ClassReport report_classes(const std::string& model, const Evaluation& evaluation,
                           const Dataset& dataset);

// The section of the page; empty where there are no classes.
std::string class_section(const ClassReport& report);

}  // namespace steelyard
