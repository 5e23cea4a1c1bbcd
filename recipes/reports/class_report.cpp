#include "steelyard/recipes/reports/class_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/data/images/resize.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/reports/html.h"

namespace steelyard {
namespace {

constexpr std::size_t kMostClasses = 100;    // with a row of scores
constexpr std::size_t kMostConfusions = 24;  // classes of a whole matrix; else its largest entries
constexpr std::size_t kMostPairs = 20;
constexpr std::size_t kMostWorst = 24;
constexpr std::int64_t kTile = 112;  // pixels of the longer side at most

std::string name_of(const Dataset& dataset, std::int64_t label) {
  const auto at = static_cast<std::size_t>(label);
  const std::vector<std::string>& names = dataset.names.classes;
  return at < names.size() ? names[at] : std::to_string(label);
}

std::string png_of(const SampleSource& source, std::int64_t sample) {
  const Shape& shape = source.shape();
  if (source.dtype() != DType::kU8 || shape.size() != 3 || (shape[2] != 1 && shape[2] != 3)) {
    return "";
  }
  Image image{shape[0], shape[1], shape[2], {}};
  image.pixels.resize(static_cast<std::size_t>(sample_values(source)));
  source.read(sample, nullptr, image.pixels.data());
  const std::int64_t longer = std::max(shape[0], shape[1]);
  if (longer > kTile) {
    image = resized(image, std::max<std::int64_t>(1, shape[0] * kTile / longer),
                    std::max<std::int64_t>(1, shape[1] * kTile / longer), Interpolation::kBilinear);
  }
  try {
    return encode_png(image);
  } catch (const InputError&) {
    return "";  // a build without libpng
  }
}

// The last two parts of a path: the folder of a class and the file in it.
std::string short_name(const std::string& name) {
  const std::size_t last = name.rfind('/');
  if (last == std::string::npos || last == 0) return name;
  const std::size_t before = name.rfind('/', last - 1);
  return before == std::string::npos ? name : name.substr(before + 1);
}

std::vector<ReportedMistake> worst_of(const Predictions& predictions, const Dataset& dataset) {
  if (!predictions.losses.defined()) return {};
  const auto losses = predictions.losses.span<double>();
  const auto labels = dataset.targets.span<std::int64_t>();
  const auto predicted = predictions.classes.span<std::int64_t>();
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (predicted[i] != labels[i]) wrong.push_back(i);
  }
  std::stable_sort(wrong.begin(), wrong.end(),
                   [&](std::size_t a, std::size_t b) { return losses[a] > losses[b]; });
  wrong.resize(std::min(wrong.size(), kMostWorst));
  const auto source = samples_of(dataset);
  std::vector<ReportedMistake> worst;
  for (const std::size_t i : wrong) {
    const auto sample = static_cast<std::int64_t>(i);
    worst.push_back({short_name(source->name(sample)), name_of(dataset, labels[i]),
                     name_of(dataset, predicted[i]), std::exp(-losses[i]),
                     png_of(*source, sample)});
  }
  return worst;
}

// A share from 0 to 1 as a bar with its number.
std::string meter(double share) {
  return fmt::format(R"(<td class="meter {}"><span></span><i>{:.1f}</i></td>)", share_class(share),
                     100 * share);
}

std::string named_cell(const std::string& text) {
  return "<td class=\"name\">" + html_escaped(text) + "</td>";
}

// The worst classes first where not all have room.
std::string score_table(const ClassReport& report) {
  std::vector<const ReportedClass*> rows;
  for (const ReportedClass& entry : report.classes) rows.push_back(&entry);
  const bool all = rows.size() <= kMostClasses;
  if (!all) {
    std::stable_sort(rows.begin(), rows.end(), [](const ReportedClass* a, const ReportedClass* b) {
      return a->scores.f1() < b->scores.f1();
    });
    rows.resize(kMostClasses);
  }
  const bool precisions = report.confusion.empty();
  std::string html = fmt::format(
      "<div class=\"wide\"><table><caption>{}. Precision, recall and F1 in %{}</caption><thead><tr>"
      "<th class=\"name\">class</th><th>samples</th><th>predicted</th><th>precision</th>"
      "<th>recall</th><th>F1</th>{}</tr></thead><tbody>\n",
      html_escaped(report.model),
      all ? "" : fmt::format("; the {} classes with the lowest F1", kMostClasses),
      precisions ? "<th>average precision</th>" : "");
  for (const ReportedClass* row : rows) {
    const ClassScores& scores = row->scores;
    html += "<tr>" + named_cell(row->name) +
            fmt::format("<td>{}</td><td>{}</td>", scores.samples, scores.predicted) +
            meter(scores.precision()) + meter(scores.recall()) + meter(scores.f1());
    if (precisions) {
      const auto& precision = scores.average_precision;
      html += precision ? meter(*precision) : "<td>–</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string confusion_table(const ClassReport& report) {
  const std::size_t classes = report.classes.size();
  std::string html =
      "<div class=\"wide\"><table class=\"confusion\"><caption>Confusion matrix: rows are true "
      "classes, columns are predicted ones</caption><thead><tr><th></th>";
  for (const ReportedClass& entry : report.classes) {
    html += "<th><span>" + html_escaped(entry.name) + "</span></th>";
  }
  html += "</tr></thead><tbody>\n";
  for (std::size_t i = 0; i < classes; ++i) {
    html += "<tr>" + named_cell(report.classes[i].name);
    for (std::size_t j = 0; j < classes; ++j) {
      const std::int64_t count = report.confusion[i * classes + j];
      const double share = static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(
                                                            1, report.classes[i].scores.samples));
      html += fmt::format(R"(<td class="{} {}">{}</td>)", i == j ? "right" : "wrong",
                          share_class(share), count == 0 ? "" : std::to_string(count));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// The most frequent confusions as a list, for more classes than a matrix holds.
std::string confusion_list(const ClassReport& report) {
  const std::size_t classes = report.classes.size();
  std::vector<std::size_t> pairs;
  for (std::size_t at = 0; at < report.confusion.size(); ++at) {
    if (at / classes != at % classes && report.confusion[at] > 0) pairs.push_back(at);
  }
  if (pairs.empty()) return "";
  std::stable_sort(pairs.begin(), pairs.end(), [&](std::size_t a, std::size_t b) {
    return report.confusion[a] > report.confusion[b];
  });
  pairs.resize(std::min(pairs.size(), kMostPairs));
  std::string html =
      "<div class=\"wide\"><table><caption>Most frequent confusions</caption><thead><tr>"
      "<th class=\"name\">class</th><th class=\"name\">predicted</th><th>samples</th>"
      "</tr></thead><tbody>\n";
  for (const std::size_t at : pairs) {
    html += "<tr>" + named_cell(report.classes[at / classes].name) +
            named_cell(report.classes[at % classes].name) +
            fmt::format("<td>{}</td></tr>\n", report.confusion[at]);
  }
  return html + "</tbody></table></div>\n";
}

std::string worst_samples(const ClassReport& report) {
  if (report.worst.empty()) return "";
  std::string html =
      "<p>Wrong predictions in which the right class has the least probability:</p>\n<div "
      "class=\"worst\">\n";
  for (const ReportedMistake& mistake : report.worst) {
    html += "<figure>";
    if (!mistake.png.empty()) {
      html += "<img alt=\"\" src=\"data:image/png;base64," + base64(mistake.png) + "\"/>";
    }
    html += fmt::format(
        "<figcaption><strong>{}</strong>, {:.2g} %<br/>predicted {}<br/>{}</figcaption>"
        "</figure>\n",
        html_escaped(mistake.label), 100 * mistake.chance, html_escaped(mistake.predicted),
        html_escaped(mistake.sample));
  }
  return html + "</div>\n";
}

}  // namespace

ClassReport report_classes(const std::string& model, const Evaluation& evaluation,
                           const Dataset& dataset) {
  ClassReport report{.model = model};
  const std::vector<ClassScores> scores = class_scores(evaluation.predictions, dataset);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    report.classes.push_back({name_of(dataset, static_cast<std::int64_t>(i)), scores[i]});
  }
  if (!evaluation.predictions.classes.defined()) return report;
  report.confusion = confusion_matrix(evaluation.predictions, dataset);
  report.worst = worst_of(evaluation.predictions, dataset);
  return report;
}

std::string class_section(const ClassReport& report) {
  if (report.classes.empty()) return "";
  std::string html = "<h2>Classes</h2>\n" + score_table(report);
  if (!report.confusion.empty()) {
    html +=
        report.classes.size() <= kMostConfusions ? confusion_table(report) : confusion_list(report);
  }
  return html + worst_samples(report);
}

}  // namespace steelyard
