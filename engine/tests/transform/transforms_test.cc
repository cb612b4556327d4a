#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millstream/transform/normalize.h"
#include "millstream/transform/origin.h"
#include "millstream/transform/random_crop.h"
#include "millstream/transform/random_flip.h"
#include "millstream/transform/reshape.h"
#include "transform/transform_conformance.h"

namespace millstream::conformance {
namespace {

/// Fills field "x" with random bytes. Represents transforms that draw random numbers.
class Noise final : public Transform {
 public:
  std::string str() const override { return "noise(x)"; }
  StageKind kind() const noexcept override { return StageKind::kFunction; }
  bool draws() const noexcept override { return true; }
  Flow flow(const Schema& input) const override {
    Flow flow = passing(input);
    flow.from[static_cast<std::size_t>(field_named(input, "x", str()))] = Flow::kMade;
    return flow;
  }
  Traits traits() const noexcept override { return {}; }
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void apply(const Flow& flow, const Request& request, const Rows&,
             Rows& out) const override {
    for (std::size_t i = 0; i < out.columns.size(); ++i) {
      if (flow.from[i] != Flow::kMade) continue;
      const Column& to = out.columns[i];
      for (std::int64_t k = 0; k < request.rows(); ++k) {
        Random random = request.random(k);
        for (std::int64_t at = 0; at < to.row_bytes(); ++at) {
          to.row(k)[at] = static_cast<std::byte>(random.below(256));
        }
      }
    }
  }
};

Schema schema(DType dtype, Shape shape) {
  return {{"before", DType::kInt16, {3}},
          {"x", dtype, shape},
          {"after", DType::kUint8, {}}};
}

using Pair = std::pair<DType, DType>;

std::vector<TransformCase> normalizes() {
  std::vector<TransformCase> cases;
  for (const auto& [from, to] :
       {Pair{DType::kUint8, DType::kFloat16}, Pair{DType::kUint8, DType::kBfloat16},
        Pair{DType::kUint8, DType::kFloat32}, Pair{DType::kUint8, DType::kFloat64},
        Pair{DType::kBool, DType::kFloat32}, Pair{DType::kInt64, DType::kFloat32},
        Pair{DType::kFloat16, DType::kFloat16}, Pair{DType::kFloat32, DType::kFloat32},
        Pair{DType::kFloat64, DType::kFloat32}}) {
    const std::string title = text(name(from), "To", name(to));
    cases.push_back({title, std::make_shared<Normalize>("x", to, 0.37, -1.5),
                     schema(from, {5, 7})});
    cases.push_back({text(title, "WithoutOffset"),
                     std::make_shared<Normalize>("x", to, 0.37), schema(from, {3})});
  }
  return cases;
}

std::vector<TransformCase> standardizes() {
  const std::vector<double> mean = {0.4, -3, 7};
  const std::vector<double> std = {0.2, 1, 3};
  std::vector<TransformCase> cases;
  for (const auto& [from, to] :
       {Pair{DType::kUint8, DType::kFloat16}, Pair{DType::kUint8, DType::kBfloat16},
        Pair{DType::kUint8, DType::kFloat32}, Pair{DType::kFloat64, DType::kFloat64}}) {
    const std::string title = text(name(from), "To", name(to));
    cases.push_back({title, std::make_shared<Normalize>("x", to, 0.3, -1.0, mean, std),
                     schema(from, {5, 7, 3})});
    cases.push_back({text(title, "WithoutOffset"),
                     std::make_shared<Normalize>("x", to, 0.3, 0.0, mean, 2.0),
                     schema(from, {67, 3})});
  }
  return cases;
}

std::vector<TransformCase> augments() {
  const auto flip = [](int axis) {
    return std::make_shared<RandomFlip>(std::vector<std::string>{"x"}, axis);
  };
  const auto crop = [](HeightWidth size, HeightWidth padding) {
    return std::make_shared<RandomCrop>(std::vector<std::string>{"x"}, size, padding);
  };
  const Schema several = {{"x", DType::kUint8, {6, 5, 3}},
                          {"label", DType::kInt32, {}},
                          {"mask", DType::kBool, {6, 5}}};
  const std::vector<std::string> both = {"mask", "x"};
  return {
      {"FlipWidth", flip(1), schema(DType::kUint8, {4, 5, 3}), true},
      {"FlipHeight", flip(0), schema(DType::kFloat32, {4, 5, 3}), true},
      {"FlipChannels", flip(-1), schema(DType::kInt64, {4, 5, 3}), true},
      {"FlipVector", flip(0), schema(DType::kComplex128, {7}), true},
      {"FlipNothing", flip(1), schema(DType::kUint8, {3, 0})},
      {"FlipTwoFields", std::make_shared<RandomFlip>(both), several, true},
      {"Crop", crop({3, 2}, {}), schema(DType::kUint8, {6, 5, 3}), true},
      {"CropPadded", crop({6, 5}, {2, 1}), schema(DType::kBfloat16, {6, 5}), true},
      {"CropLarger", crop({9, 9}, {3, 3}), schema(DType::kFloat64, {4, 5, 1}), true},
      {"CropInPadding", crop({2, 2}, {2, 2}), schema(DType::kUint8, {3, 3}), true},
      {"CropWhole", crop({6, 5}, {}), schema(DType::kUint8, {6, 5, 3})},
      {"CropTwoFields",
       std::make_shared<RandomCrop>(both, HeightWidth{4, 4}, HeightWidth{1, 0}),
       several, true},
  };
}

std::vector<TransformCase> casts() {
  std::vector<TransformCase> cases;
  for (const auto& [from, to] :
       {Pair{DType::kUint8, DType::kUint8}, Pair{DType::kUint8, DType::kFloat32},
        Pair{DType::kInt64, DType::kInt32}, Pair{DType::kFloat32, DType::kBfloat16},
        Pair{DType::kFloat64, DType::kBool}, Pair{DType::kFloat32, DType::kInt8},
        Pair{DType::kInt32, DType::kComplex64},
        Pair{DType::kComplex128, DType::kComplex64}}) {
    cases.push_back({text(name(from), "To", name(to)),
                     std::make_shared<Normalize>("x", to), schema(from, {13})});
  }
  return cases;
}

std::vector<TransformCase> others() {
  const std::map<std::string, std::string> names = {{"x", "after"}, {"after", "x"}};
  return {
      {"Flatten", std::make_shared<Flatten>("x"), schema(DType::kFloat32, {2, 3, 4})},
      {"FlattenFromAxis", std::make_shared<Flatten>("x", 1),
       schema(DType::kUint8, {2, 3, 4})},
      {"FlattenScalar", std::make_shared<Flatten>("x"), schema(DType::kInt64, {})},
      {"Rename", std::make_shared<Rename>(names), schema(DType::kFloat32, {4})},
      {"NormalizeScalar", std::make_shared<Normalize>("x", DType::kFloat32, 2.0, 1.0),
       schema(DType::kUint8, {})},
      {"NormalizeNothing", std::make_shared<Normalize>("x", DType::kFloat32, 2.0, 1.0),
       schema(DType::kUint8, {3, 0})},
      {"NormalizeImage", std::make_shared<Normalize>("x", DType::kFloat32, 2.0, 1.0),
       schema(DType::kUint8, {28, 28, 3})},
      {"Noise", std::make_shared<Noise>(), schema(DType::kUint8, {9}), true},
      {"Origin", std::make_shared<Origin>(), schema(DType::kUint8, {9}), false, true},
  };
}

INSTANTIATE_TEST_SUITE_P(Normalize, TransformConformance,
                         testing::ValuesIn(normalizes()), case_name);
INSTANTIATE_TEST_SUITE_P(Standardize, TransformConformance,
                         testing::ValuesIn(standardizes()), case_name);
INSTANTIATE_TEST_SUITE_P(Augment, TransformConformance, testing::ValuesIn(augments()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Cast, TransformConformance, testing::ValuesIn(casts()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Other, TransformConformance, testing::ValuesIn(others()),
                         case_name);

}  // namespace
}  // namespace millstream::conformance
