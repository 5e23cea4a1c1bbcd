#include "steelyard/kernels/softmax/softmax.h"

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

std::vector<std::int64_t> some_labels(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> labels(rows);
  for (std::int64_t r = 0; r < rows; ++r) labels[r] = (r * 7 + 3) % classes;
  return labels;
}

struct Reference {
  double loss = 0;
  std::vector<double> grad;
};

template <typename T>
T cross_entropy(std::int64_t rows, std::int64_t classes, const T* logits,
                const std::int64_t* labels, double smoothing, T* grad) {
  T loss = T(99);
  run(SoftmaxCrossEntropy<T>{rows, classes, logits, labels, smoothing, &loss, grad});
  return loss;
}

// The definition, in long double.
template <typename T>
Reference reference(std::int64_t rows, std::int64_t classes, const std::vector<T>& logits,
                    const std::vector<std::int64_t>& labels, double smoothing) {
  Reference result;
  long double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits.data() + r * classes;
    long double largest = row[0], sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) largest = std::max<long double>(largest, row[c]);
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
    for (std::int64_t c = 0; c < classes; ++c) {
      const long double target =
          smoothing / double(classes) + (c == labels[r] ? 1 - smoothing : 0.0);
      const long double log_p = row[c] - largest - std::log(sum);
      loss -= target * log_p;
      result.grad.push_back(double((std::exp(log_p) - target) / rows));
    }
  }
  result.loss = double(loss / rows);
  return result;
}

template <typename T>
void check(std::int64_t rows, std::int64_t classes, double spread, double smoothing,
           double tolerance) {
  auto logits = random_values<T>(rows * classes, 1);
  for (T& v : logits) v *= T(spread);
  const auto labels = some_labels(rows, classes);
  const Reference expected = reference(rows, classes, logits, labels, smoothing);
  std::vector<T> grad(logits.size(), T(99));
  const T loss = cross_entropy(rows, classes, logits.data(), labels.data(), smoothing, grad.data());
  EXPECT_NEAR(double(loss), expected.loss, tolerance * (1 + expected.loss));
  for (std::size_t i = 0; i < grad.size(); ++i) {
    ASSERT_NEAR(double(grad[i]), expected.grad[i], tolerance / double(rows)) << i;
  }
  EXPECT_EQ(loss,
            cross_entropy<T>(rows, classes, logits.data(), labels.data(), smoothing, nullptr));
}

TEST(SoftmaxCrossEntropy, MatchesTheDefinition) {
  for (const double smoothing : {0.0, 0.1, 0.9}) {
    for (const double spread : {0.5, 20.0, 1e4}) {
      for (const auto& [rows, classes] :
           std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {128, 10}, {33, 1000}}) {
        check<float>(rows, classes, spread, smoothing, 2e-6);
        check<double>(rows, classes, spread, smoothing, 1e-13);
      }
    }
  }
}

TEST(SoftmaxCrossEntropy, GradientMatchesFiniteDifferences) {
  auto logits = random_values<double>(5 * 7, 2);
  const auto labels = some_labels(5, 7);
  std::vector<double> grad(logits.size());
  cross_entropy(5, 7, logits.data(), labels.data(), 0.2, grad.data());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double kept = logits[i], h = 1e-5;
    const auto loss_at = [&](double value) {
      logits[i] = value;
      return cross_entropy<double>(5, 7, logits.data(), labels.data(), 0.2, nullptr);
    };
    const double difference = (loss_at(kept + h) - loss_at(kept - h)) / (2 * h);
    logits[i] = kept;
    EXPECT_NEAR(grad[i], difference, 1e-9) << i;
  }
}

TEST(SoftmaxCrossEntropy, ANanLogitAnywhereGivesANanLoss) {
  for (int position = 0; position < 4; ++position) {
    std::vector<float> logits = {1, 2, 3, 4};
    logits[position] = std::numeric_limits<float>::quiet_NaN();
    const std::int64_t label = 2;
    std::vector<float> grad(4);
    EXPECT_TRUE(std::isnan(cross_entropy(1, 4, logits.data(), &label, 0.0, grad.data())));
    for (const float g : grad) EXPECT_TRUE(std::isnan(g));
  }
}

TEST(SoftmaxCrossEntropy, AMaskedLogitHasNoGradient) {
  const std::vector<float> logits = {1, -std::numeric_limits<float>::infinity(), 1};
  const std::int64_t label = 0;
  std::vector<float> grad(3);
  EXPECT_NEAR(cross_entropy(1, 3, logits.data(), &label, 0.0, grad.data()), std::log(2.0), 1e-6);
  EXPECT_EQ(grad, (std::vector<float>{-0.5F, 0.0F, 0.5F}));
}

TEST(SoftmaxCrossEntropy, DoesNotDependOnTheThreadCount) {
  const auto logits = random_values<float>(3000 * 10, 3);
  const auto labels = some_labels(3000, 10);
  test::expect_same_for_any_thread_count([&] {
    std::vector<float> grad(logits.size() + 1);
    grad.back() = cross_entropy(3000, 10, logits.data(), labels.data(), 0.1, grad.data());
    return grad;
  });
}

// The definition, in long double, and its derivative along a direction.
template <typename T>
void check_log_softmax(std::int64_t rows, std::int64_t columns, double spread, double tolerance) {
  auto x = random_values<T>(rows * columns, 4);
  for (T& v : x) v *= T(spread);
  const auto dy = random_values<T>(rows * columns, 5);
  std::vector<T> y(x.size(), T(99)), dx(x.size(), T(99));
  run(LogSoftmax<T>{rows, columns, x.data(), y.data()});
  run(LogSoftmaxBackward<T>{rows, columns, y.data(), dy.data(), dx.data()});
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = x.data() + r * columns;
    const long double largest = *std::max_element(row, row + columns);
    long double sum = 0, of_grad = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      sum += std::exp(row[c] - largest);
      of_grad += dy[r * columns + c];
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      const long double expected = row[c] - largest - std::log(sum);
      ASSERT_NEAR(double(y[i]), double(expected), tolerance * double(1 - expected)) << i;
      ASSERT_NEAR(double(dx[i]), double(dy[i] - std::exp(expected) * of_grad),
                  tolerance * double(1 + std::abs(of_grad)) * (1 - double(expected)))
          << i;
    }
  }
}

TEST(LogSoftmax, MatchesTheDefinition) {
  for (const double spread : {0.5, 20.0, 1e4}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {128, 10}, {33, 1000}}) {
      check_log_softmax<float>(rows, columns, spread, 2e-7);
      check_log_softmax<double>(rows, columns, spread, 1e-13);
    }
  }
}

TEST(LogSoftmax, ANaNMakesItsRowNaNAndInfinityLeavesTheOthers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1, NAN, 2, 1, -infinity, 1};
  std::vector<float> y(6);
  run(LogSoftmax<float>{2, 3, x.data(), y.data()});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  EXPECT_EQ(y[4], -infinity);
  for (const int i : {3, 5}) EXPECT_FLOAT_EQ(y[i], -std::log(2.0F));
  const std::vector<float> dy = {1, 1, 1, 1, 2, 3};
  std::vector<float> dx(6);
  run(LogSoftmaxBackward<float>{2, 3, y.data(), dy.data(), dx.data()});
  EXPECT_FLOAT_EQ(dx[3], -2);
  EXPECT_EQ(dx[4], 2);
  EXPECT_NEAR(dx[5], 0, 1e-7);
}

TEST(Argmax, FirstOfEqualsAndNanWins) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::vector<double>> rows = {
      {7, 7, 7}, {1, 5, 5}, {-3, -4, -2}, {9, nan, nan}, {nan, 1, 2}};
  const std::vector<std::int64_t> expected = {0, 1, 2, 1, 0};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::int64_t prediction = -1;
    run(ArgmaxRows<double>{1, 3, rows[i].data(), &prediction});
    EXPECT_EQ(prediction, expected[i]) << "row " << i;
    std::int64_t correct = 0;
    run(AddCorrectRows<double>{1, 3, rows[i].data(), &expected[i], &correct});
    EXPECT_EQ(correct, i < 3 ? 1 : 0) << "row " << i << ": NaN is no answer";
  }
}

TEST(Argmax, EveryRow) {
  const std::int64_t rows = 5000, classes = 10;
  std::vector<float> logits(rows * classes, 0.0F);
  std::vector<std::int64_t> expected(rows), predictions(rows, -1);
  for (std::int64_t r = 0; r < rows; ++r) {
    expected[r] = r * 7 % classes;
    logits[r * classes + expected[r]] = 1;
  }
  run(ArgmaxRows<float>{rows, classes, logits.data(), predictions.data()});
  EXPECT_EQ(predictions, expected);
  expected[7] = (expected[7] + 1) % classes;
  std::int64_t correct = 2;
  run(AddCorrectRows<float>{rows, classes, logits.data(), expected.data(), &correct});
  EXPECT_EQ(correct, 2 + rows - 1);
}

}  // namespace
}  // namespace steelyard::kernels
