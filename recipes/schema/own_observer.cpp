// An observer of a program's whose errors have its name.
#include <utility>

#include "steelyard/recipes/schema/registries.h"

namespace steelyard {
namespace {

class OwnObserver : public observers::Observer {
  template <typename Member>
  auto named(Member member) const {
    return in_part(part_, [&] { return (own_.get()->*member)(); });
  }

 public:
  OwnObserver(std::string part, std::unique_ptr<observers::Observer> own)
      : part_(std::move(part)), own_(std::move(own)) {}

  std::string name() const override { return named(&Observer::name); }
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override {
    in_part(part_, [&] { own_->observe(layout, values, non_finite); });
  }
  std::optional<observers::RunningRange> running_range() const override {
    return named(&Observer::running_range);
  }
  bool forgets() const override { return named(&Observer::forgets); }
  observers::Extremes range() const override { return named(&Observer::range); }
  void set_bits(int bits) override {
    in_part(part_, [&] { own_->set_bits(bits); });
  }
  void reset() override { named(&Observer::reset); }
  std::vector<NamedBuffer> state() const override { return named(&Observer::state); }

  bool needs_first_pass() const override { return named(&Observer::needs_first_pass); }
  void begin_first_pass() override { named(&Observer::begin_first_pass); }
  void end_first_pass() override { named(&Observer::end_first_pass); }
  void begin_step() override { named(&Observer::begin_step); }
  std::vector<Tensor> sums() override { return named(&Observer::sums); }
  std::vector<Tensor> maxima() override { return named(&Observer::maxima); }
  std::vector<Tensor> counts() override { return named(&Observer::counts); }
  void end_step() override { named(&Observer::end_step); }
  void abandon_step() override { named(&Observer::abandon_step); }

 private:
  std::string part_;
  std::unique_ptr<observers::Observer> own_;
};

}  // namespace

std::unique_ptr<observers::Observer> observer_of_part(
    const std::string& part, std::unique_ptr<observers::Observer> observer) {
  if (!observer) return nullptr;
  return std::make_unique<OwnObserver>(part, std::move(observer));
}

}  // namespace steelyard
