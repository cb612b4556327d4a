#include "millstream/transform/chain.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/transform/normalize.h"
#include "millstream/transform/reshape.h"

namespace millstream {
namespace {

using Stages = std::vector<std::shared_ptr<const Transform>>;

std::shared_ptr<const Transform> normalize(const std::string& field, DType dtype,
                                           double scale = 1, double offset = 0) {
  return std::make_shared<Normalize>(field, dtype, scale, offset);
}

/// Rows of one field in their own memory, with two guard bytes after each row.
template <typename T>
struct TypedRows {
  TypedRows(DType dtype, Shape shape, std::int64_t rows)
      : bytes(static_cast<std::size_t>(rows) * (size(shape) + 2), std::byte{0xA5}),
        column{dtype, shape, bytes.data(), static_cast<std::int64_t>(size(shape) + 2),
               nullptr} {}
  static std::size_t size(const Shape& shape) {
    return static_cast<std::size_t>(shape.elements()) * sizeof(T);
  }
  T get(std::int64_t row, std::int64_t at) const {
    T value;
    std::memcpy(&value, column.row(row) + at * std::int64_t{sizeof(T)}, sizeof(T));
    return value;
  }
  void set(std::int64_t row, std::int64_t at, T value) {
    std::memcpy(column.row(row) + at * std::int64_t{sizeof(T)}, &value, sizeof(T));
  }
  std::vector<std::byte> bytes;
  Column column;
};

/// Copies field 0, and records the columns and the stage number that it was given.
class Probe final : public Transform {
 public:
  struct Seen {
    std::vector<Column> input;
    std::vector<Column> output;
    std::uint32_t stage = 0;
  };
  explicit Probe(Seen* seen, StageKind kind = StageKind::kFunction, bool draws = true)
      : seen_(seen), kind_(kind), draws_(draws) {}

  std::string str() const override { return "probe"; }
  StageKind kind() const noexcept override { return kind_; }
  bool draws() const noexcept override { return draws_; }
  Flow flow(const Schema& input) const override {
    Flow flow = passing(input);
    flow.from[0] = Flow::kMade;
    return flow;
  }
  Traits traits() const noexcept override { return {.cheap = false}; }
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void apply(const Flow&, const Request& request, const Rows& in,
             Rows& out) const override {
    seen_->input.assign(in.columns.begin(), in.columns.end());
    seen_->output.assign(out.columns.begin(), out.columns.end());
    seen_->stage = request.stage;
    for (std::int64_t k = 0; k < request.rows(); ++k) {
      std::memcpy(out.columns[0].row(k), in.columns[0].row(k),
                  static_cast<std::size_t>(in.columns[0].row_bytes()));
    }
  }

 private:
  Seen* seen_;
  StageKind kind_;
  bool draws_;
};

const Schema kInput = {{"image", DType::kUint8, {2, 3}}, {"label", DType::kInt64, {}}};

struct Sample {
  Sample() : image(DType::kUint8, {2, 3}, 3), label(DType::kInt64, {}, 3) {
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t at = 0; at < 6; ++at) {
        image.set(row, at, static_cast<std::uint8_t>(row * 50 + at));
      }
      label.set(row, 0, row * 1000 - 1);
    }
  }
  std::vector<Column> columns() const { return {image.column, label.column}; }
  TypedRows<std::uint8_t> image;
  TypedRows<std::int64_t> label;
};

/// Runs `count` samples, 70, 71 and so on, through a chain.
void run(const Chain& chain, std::span<const Column> input,
         std::span<const Column> output, std::size_t count) {
  const std::int64_t indices[] = {70, 71, 72};
  const std::uint32_t epochs[] = {0, 0, 0};
  Memory memory;
  Rows out{output, memory};
  chain.run({std::span(indices).first(count),
             std::span(epochs).first(count),
             {},
             0,
             kNoContext,
             99},
            {input, memory}, out);
}

TEST(Chain, WithoutStagesCopiesColumnsToTheOutput) {
  const Sample sample;
  const Chain chain(kInput, {});
  EXPECT_EQ(chain.output(), kInput);
  EXPECT_EQ(chain.output_of(0), 0);
  EXPECT_EQ(chain.output_of(1), 1);
  TypedRows<std::uint8_t> image(DType::kUint8, {2, 3}, 3);
  TypedRows<std::int64_t> label(DType::kInt64, {}, 3);
  const Column output[] = {image.column, label.column};
  run(chain, sample.columns(), output, 3);
  EXPECT_EQ(image.bytes, sample.image.bytes);
  EXPECT_EQ(label.bytes, sample.label.bytes);
}

TEST(Chain, ReportsFieldsThatTheSourceMayWriteToTheBatch) {
  const Chain chain(
      kInput,
      {std::make_shared<Rename>(
           std::map<std::string, std::string>{{"label", "target"}}),
       normalize("image", DType::kFloat32, 2), std::make_shared<Flatten>("image")});
  EXPECT_EQ(chain.output_of(0), -1);
  EXPECT_EQ(chain.output_of(1), 1);
  EXPECT_EQ(chain.output(),
            (Schema{{"image", DType::kFloat32, {6}}, {"target", DType::kInt64, {}}}));
}

TEST(Chain, SchemaOnlyStagesLeaveEveryFieldDirect) {
  const Chain chain(
      kInput, {std::make_shared<Flatten>("image"),
               std::make_shared<Rename>(
                   std::map<std::string, std::string>{{"image", "x"}, {"label", "y"}}),
               normalize("x", DType::kUint8)});
  EXPECT_EQ(chain.output_of(0), 0);
  EXPECT_EQ(chain.output_of(1), 1);
  EXPECT_EQ(chain.output(),
            (Schema{{"x", DType::kUint8, {6}}, {"y", DType::kInt64, {}}}));
}

TEST(Chain, DoesNotCopyColumnsThatAreInPlace) {
  const Sample sample;
  const Chain chain(kInput, {normalize("image", DType::kFloat32, 2)});
  TypedRows<float> image(DType::kFloat32, {2, 3}, 3);
  const Column output[] = {image.column, sample.label.column};
  const auto before = sample.label.bytes;
  run(chain, sample.columns(), output, 3);
  EXPECT_EQ(sample.label.bytes, before);
  EXPECT_EQ(image.get(2, 5), 210.0f);
}

TEST(Chain, TheLastStageThatMakesAFieldWritesToTheOutput) {
  const Sample sample;
  Probe::Seen first;
  Probe::Seen last;
  const Chain chain(kInput,
                    {std::make_shared<Probe>(&first), std::make_shared<Probe>(&last),
                     std::make_shared<Flatten>("image")});
  TypedRows<std::uint8_t> image(DType::kUint8, {6}, 3);
  TypedRows<std::int64_t> label(DType::kInt64, {}, 3);
  const Column output[] = {image.column, label.column};
  run(chain, sample.columns(), output, 3);
  EXPECT_EQ(first.input[0].data, sample.image.column.data);
  EXPECT_NE(first.output[0].data, image.column.data);
  EXPECT_EQ(last.input[0].data, first.output[0].data);
  EXPECT_EQ(last.output[0].data, image.column.data);
  EXPECT_EQ(last.input[1].data, sample.label.column.data);
  EXPECT_EQ(last.output[1].data, sample.label.column.data);
  EXPECT_EQ(image.bytes, sample.image.bytes);
}

TEST(Chain, AStageGetsTheShapesOfItsOwnFlow) {
  const Sample sample;
  Probe::Seen seen;
  const Chain chain(
      kInput, {std::make_shared<Probe>(&seen), std::make_shared<Flatten>("image")});
  TypedRows<std::uint8_t> image(DType::kUint8, {6}, 3);
  TypedRows<std::int64_t> label(DType::kInt64, {}, 3);
  const Column output[] = {image.column, label.column};
  run(chain, sample.columns(), output, 3);
  EXPECT_EQ(seen.output[0].shape, Shape({2, 3}));
  EXPECT_EQ(seen.output[0].data, image.column.data);
}

TEST(Chain, StageNumbersDependOnTheKindOfTheStage) {
  const Sample sample;
  Probe::Seen earlier;
  Probe::Seen still;
  Probe::Seen first;
  Probe::Seen native;
  Probe::Seen second;
  const Chain chain(
      kInput,
      {std::make_shared<Probe>(&still, StageKind::kFunction, false),
       std::make_shared<Probe>(&first), std::make_shared<Flatten>("image"),
       std::make_shared<Probe>(&native, StageKind::kNormalize),
       std::make_shared<Probe>(&second)},
      {std::make_shared<Rename>(std::map<std::string, std::string>{}),
       std::make_shared<Probe>(&earlier)});
  TypedRows<std::uint8_t> image(DType::kUint8, {6}, 3);
  const Column output[] = {image.column, sample.label.column};
  run(chain, sample.columns(), output, 3);
  EXPECT_EQ(first.stage, 1u);
  EXPECT_EQ(second.stage, 2u);
  EXPECT_EQ(native.stage, 0x10000u);
}

TEST(Chain, FunctionNumbersContinueAfterThoseOfTheSource) {
  const Sample sample;
  Probe::Seen first;
  Probe::Seen native;
  Probe::Seen second;
  const Chain chain(kInput,
                    {std::make_shared<Probe>(&first),
                     std::make_shared<Probe>(&native, StageKind::kNormalize),
                     std::make_shared<Probe>(&second)},
                    {}, 1);
  TypedRows<std::uint8_t> image(DType::kUint8, {2, 3}, 3);
  const Column output[] = {image.column, sample.label.column};
  run(chain, sample.columns(), output, 3);
  EXPECT_EQ(first.stage, 1u);
  EXPECT_EQ(second.stage, 2u);
  EXPECT_EQ(native.stage, 0x10000u);
}

TEST(Chain, CombinesTheTraitsOfItsStages) {
  Probe::Seen seen;
  EXPECT_EQ(Chain(kInput, {}).traits(), Traits{});
  EXPECT_EQ(Chain(kInput, {std::make_shared<Flatten>("image"),
                           normalize("image", DType::kFloat32, 2)})
                .traits(),
            Traits{});
  EXPECT_EQ(
      Chain(kInput, {std::make_shared<Flatten>("image"), std::make_shared<Probe>(&seen),
                     normalize("image", DType::kInt64)})
          .traits(),
      Traits{.cheap = false});
}

TEST(StageKind, NumbersAndTheirRandomBitsNeverChange) {
  const std::tuple<StageKind, std::uint32_t, std::uint32_t> kinds[] = {
      {StageKind::kFunction, 0, 1507965711u},
      {StageKind::kNormalize, 0x10000, 1652931548u},
      {StageKind::kFlatten, 0x20000, 3891051861u},
      {StageKind::kRename, 0x30000, 2388313474u},
      {StageKind::kRandomFlip, 0x60000, 531197893u},
      {StageKind::kRandomCrop, 0x70000, 3048949843u},
      {StageKind::kSource, 0x50000, 1233912142u},
  };
  for (const auto& [kind, number, word] : kinds) {
    EXPECT_EQ(static_cast<std::uint32_t>(kind), number);
    EXPECT_EQ(Random({7, 11}, 3, 12345, number).bits(), word) << number;
  }
}

TEST(Chain, AppliesTwoNormalizesInOrder) {
  const Sample sample;
  const Chain chain(kInput, {normalize("image", DType::kFloat32, 0.5, 1),
                             normalize("image", DType::kFloat64, 3, -2)});
  EXPECT_EQ(chain.output()[0], (Field{"image", DType::kFloat64, {2, 3}}));
  TypedRows<double> image(DType::kFloat64, {2, 3}, 3);
  const Column output[] = {image.column, sample.label.column};
  run(chain, sample.columns(), output, 3);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t at = 0; at < 6; ++at) {
      const auto value = static_cast<double>(sample.image.get(row, at));
      EXPECT_EQ(image.get(row, at), (value * 0.5 + 1) * 3 - 2);
    }
  }
}

TEST(Chain, ConvertsToTheDtypeOfTheOutputAtTheEnd) {
  const Sample sample;
  const Chain chain(kInput, {normalize("image", DType::kFloat64, 0.1)});
  TypedRows<float> image(DType::kFloat32, {2, 3}, 3);
  TypedRows<std::int32_t> label(DType::kInt32, {}, 3);
  const Column output[] = {image.column, label.column};
  run(chain, sample.columns(), output, 3);
  for (std::int64_t row = 0; row < 3; ++row) {
    const double value = static_cast<double>(sample.image.get(row, 5)) * 0.1;
    EXPECT_EQ(image.get(row, 5), static_cast<float>(value));
    EXPECT_EQ(label.get(row, 0), row * 1000 - 1);
  }
  EXPECT_EQ(label.bytes.back(), std::byte{0xA5});
}

TEST(Chain, RejectsAnIntegerThatDoesNotFitTheOutput) {
  Sample sample;
  sample.label.set(1, 0, (std::int64_t{1} << 40) + 5);
  const Chain chain(kInput, {});
  TypedRows<std::int32_t> label(DType::kInt32, {}, 3);
  const Column output[] = {sample.image.column, label.column};
  try {
    run(chain, sample.columns(), output, 3);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(
        error.what(),
        "label: sample 71 holds a value of dtype int64 that int32 cannot hold, "
        "1099511627781; set jax_enable_x64 for 64-bit values, or store values that "
        "int32 can hold");
  }
}

TEST(Chain, TakesScatteredRows) {
  const Sample sample;
  std::byte* rows[] = {sample.image.column.row(2), sample.image.column.row(0)};
  std::byte* labels[] = {sample.label.column.row(2), sample.label.column.row(0)};
  const Column input[] = {{DType::kUint8, {2, 3}, nullptr, 0, rows},
                          {DType::kInt64, {}, nullptr, 0, labels}};
  const Chain chain(kInput, {std::make_shared<Flatten>("image"),
                             normalize("label", DType::kFloat32, 2)});
  TypedRows<std::uint8_t> image(DType::kUint8, {6}, 2);
  TypedRows<float> label(DType::kFloat32, {}, 2);
  const Column output[] = {image.column, label.column};
  run(chain, input, output, 2);
  EXPECT_EQ(image.get(0, 5), 105);
  EXPECT_EQ(image.get(1, 5), 5);
  EXPECT_EQ(label.get(0, 0), 3998.0f);
  EXPECT_EQ(label.get(1, 0), -2.0f);
}

TEST(Chain, RejectsAStageThatDoesNotFitItsInput) {
  const auto build = [](const Stages& stages) -> std::string {
    try {
      const Chain chain(kInput, stages);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(build({std::make_shared<Rename>(
                       std::map<std::string, std::string>{{"image", "x"}}),
                   normalize("image", DType::kFloat32)}),
            "cast(image, float32): there is no field 'image', only 'x', 'label'");
  EXPECT_EQ(build({std::make_shared<Flatten>("image"),
                   std::make_shared<Flatten>("image", 2)}),
            "flatten(image): axis 2 is out of range for image: uint8(6,)");
}

}  // namespace
}  // namespace millstream
