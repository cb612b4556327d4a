#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/transform/chain.h"

namespace millstream::conformance {

using Bytes = std::vector<std::byte>;

/// A transform to test, and an input schema that it accepts.
struct TransformCase {
  std::string name;  // letters and digits
  std::shared_ptr<const Transform> transform;
  Schema input;
  bool random = false;  // whether its output depends on random numbers
  bool origin = false;  // takes any fields, and its output depends on the epoch
  /// Fills field `field` of a sample; null for random numbers.
  std::function<void(std::int64_t sample, std::size_t field, std::span<std::byte>)>
      fill = nullptr;
};

inline void PrintTo(const TransformCase& value, std::ostream* out) {
  *out << value.name;
}

/// How columns are laid out in memory.
struct Layout {
  std::int64_t gap = 0;     // bytes between rows
  std::int64_t offset = 0;  // bytes before the first row
  bool scattered = false;   // one pointer per row
};

/// Tests the contract of `Transform`. Instantiate this suite for every transform.
class TransformConformance : public testing::TestWithParam<TransformCase> {
 protected:
  static constexpr std::byte kGuard{0xA5};

  /// The sample and the epoch of each row.
  struct Batch {
    std::vector<std::int64_t> indices;
    std::vector<std::uint32_t> epochs;
    Seed seed = {3, 9};
    std::uint32_t stage = 2;

    std::int64_t rows() const { return static_cast<std::int64_t>(indices.size()); }
    Request request() const { return {indices, epochs, seed, 0, kNoContext, stage}; }
    Batch part(const std::vector<std::size_t>& rows_of) const {
      Batch result = {{}, {}, seed, stage};
      for (const std::size_t row : rows_of) {
        result.indices.push_back(indices[row]);
        result.epochs.push_back(epochs[row]);
      }
      return result;
    }
  };

  /// Columns of a schema in their own memory, with guard bytes around every row.
  class Columns {
   public:
    Columns(const Schema& schema, std::int64_t rows, const Layout& layout)
        : rows_(rows), layout_(layout), pointers_(schema.size()) {
      for (std::size_t i = 0; i < schema.size(); ++i) {
        const std::int64_t stride = byte_size(schema[i]) + layout.gap;
        const auto size = static_cast<std::size_t>(layout.offset + rows * stride + 64);
        bytes_.emplace_back(size, kGuard);
        Column column = {schema[i].dtype, schema[i].shape,
                         bytes_.back().data() + layout.offset, stride, nullptr};
        for (std::int64_t k = 0; layout.scattered && k < rows; ++k) {
          pointers_[i].push_back(column.data + (rows - 1 - k) * stride);
        }
        if (layout.scattered) column.data = nullptr;
        columns_.push_back(column);
      }
      for (std::size_t i = 0; layout.scattered && i < schema.size(); ++i) {
        columns_[i].rows = pointers_[i].data();
      }
    }
    Columns(const Columns&) = delete;

    const std::vector<Column>& columns() const { return columns_; }
    const std::vector<Bytes>& bytes() const { return bytes_; }

    Bytes row(std::size_t field, std::int64_t k) const {
      const std::byte* data = columns_[field].row(k);
      return {data, data + columns_[field].row_bytes()};
    }

    void expect_guards_intact(std::size_t field) const {
      const Bytes& bytes = bytes_[field];
      const std::int64_t stride = columns_[field].stride;
      for (std::int64_t at = 0; at < static_cast<std::int64_t>(bytes.size()); ++at) {
        const std::int64_t place = at - layout_.offset;
        const bool inside = place >= 0 && place < rows_ * stride &&
                            place % stride < stride - layout_.gap;
        if (inside) continue;
        ASSERT_EQ(bytes[static_cast<std::size_t>(at)], kGuard)
            << "byte " << place << " of field " << field << " is outside the rows";
      }
    }

   private:
    std::int64_t rows_;
    Layout layout_;
    std::vector<Bytes> bytes_;
    std::vector<std::vector<std::byte*>> pointers_;
    std::vector<Column> columns_;
  };

  using Made = std::vector<std::vector<Bytes>>;  // by row, then by field

  const Transform& transform() const { return *GetParam().transform; }
  const Schema& input() const { return GetParam().input; }

  static Batch some_batch() {
    return {{5, 0, 7, 5, 2, std::int64_t{1} << 40, 3, 7, 1, 6, 4},
            {0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0}};
  }

  static void fill_plausibly(std::int64_t sample, std::size_t field, DType dtype,
                             std::span<std::byte> out) {
    Random random({42, 0}, 0, sample, static_cast<std::uint32_t>(field));
    visit(dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      for (std::size_t at = 0; at < out.size(); at += sizeof(T)) {
        const T value = converted<T>(random.uniform() * 400.0f - 100.0f);
        std::memcpy(out.data() + at, &value, sizeof(T));
      }
    });
  }

  /// Fills the input. The bytes depend only on the sample; padding is zero.
  void fill(const Columns& columns, const Batch& batch) const {
    for (std::size_t i = 0; i < input().size(); ++i) {
      const Column& column = columns.columns()[i];
      for (std::int64_t k = 0; k < batch.rows(); ++k) {
        const std::span out(column.row(k),
                            static_cast<std::size_t>(column.row_bytes()));
        const std::int64_t sample = batch.indices[static_cast<std::size_t>(k)];
        if (sample < 0) {
          std::ranges::fill(out, std::byte{0});
        } else if (GetParam().fill) {
          GetParam().fill(sample, i, out);
        } else {
          fill_plausibly(sample, i, column.dtype, out);
        }
      }
    }
  }

  /// Applies the transform and checks that it writes only to its rows.
  Made made(const Batch& batch, const Layout& from = {}, const Layout& to = {}) const {
    Memory memory;
    return made(batch, from, to, memory);
  }

  Made made(const Batch& batch, const Layout& from, const Layout& to,
            Memory& memory) const {
    const Flow flow = transform().flow(input());
    const Columns source(input(), batch.rows(), from);
    fill(source, batch);
    const auto before = source.bytes();
    const Columns target(flow.schema, batch.rows(), to);
    std::vector<Column> output = target.columns();
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (flow.from[i] == Flow::kMade) continue;
      output[i] = source.columns()[static_cast<std::size_t>(flow.from[i])];
      output[i].shape = flow.schema[i].shape;
    }
    Rows rows{output, memory};
    transform().apply(flow, batch.request(), {source.columns(), memory}, rows);
    EXPECT_EQ(source.bytes(), before) << "the transform changed its input";
    Made result(static_cast<std::size_t>(batch.rows()));
    for (std::size_t i = 0; i < output.size(); ++i) {
      target.expect_guards_intact(i);
      if (flow.from[i] != Flow::kMade) continue;
      for (std::int64_t k = 0; k < batch.rows(); ++k) {
        result[static_cast<std::size_t>(k)].push_back(target.row(i, k));
      }
    }
    return result;
  }
};

TEST_P(TransformConformance, FlowIsStable) {
  const Flow flow = transform().flow(input());
  const Flow again = transform().flow(input());
  EXPECT_EQ(flow.schema, again.schema);
  EXPECT_EQ(flow.from, again.from);
  EXPECT_FALSE(transform().str().empty());
  EXPECT_EQ(transform().traits(), transform().traits());
  EXPECT_EQ(transform().traits().workers > 0, transform().worker_pool() != nullptr);
}

TEST_P(TransformConformance, FlowIsConsistent) {
  const Flow flow = transform().flow(input());
  ASSERT_EQ(flow.schema.size(), flow.from.size());
  std::set<std::string> names;
  for (std::size_t i = 0; i < flow.schema.size(); ++i) {
    EXPECT_TRUE(names.insert(flow.schema[i].name).second) << flow.schema[i].name;
    if (flow.from[i] == Flow::kMade) continue;
    ASSERT_GE(flow.from[i], 0);
    ASSERT_LT(flow.from[i], static_cast<int>(input().size()));
    const Field& passed = input()[static_cast<std::size_t>(flow.from[i])];
    EXPECT_EQ(flow.schema[i].dtype, passed.dtype) << str(passed);
    EXPECT_EQ(byte_size(flow.schema[i]), byte_size(passed)) << str(passed);
  }
}

TEST_P(TransformConformance, FlowRejectsASchemaWithoutItsFields) {
  if (GetParam().origin) return;
  try {
    transform().flow({{"unknown", DType::kUint8, {2}}});
    FAIL() << "flow() accepted the schema";
  } catch (const ArgumentError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(transform().str()))
        << error.what();
  }
}

TEST_P(TransformConformance, DenseAndScatteredInputsGiveEqualOutputs) {
  const Batch batch = some_batch();
  const Made dense = made(batch);
  EXPECT_EQ(made(batch, {.scattered = true}), dense);
  EXPECT_EQ(made(batch, {.gap = 7, .offset = 1}), dense);
  EXPECT_EQ(made(batch, {.gap = 3, .offset = 5, .scattered = true}), dense);
}

TEST_P(TransformConformance, OutputRowsMayHaveAnyStrideAndOffset) {
  const Batch batch = some_batch();
  const Made dense = made(batch);
  EXPECT_EQ(made(batch, {}, {.gap = 64}), dense);
  EXPECT_EQ(made(batch, {}, {.gap = 5, .offset = 3}), dense);
  EXPECT_EQ(made(batch, {.gap = 1, .offset = 1}, {.gap = 1, .offset = 1}), dense);
}

TEST_P(TransformConformance, OneRowAtATimeEqualsAllRowsTogether) {
  const Batch batch = some_batch();
  const Made whole = made(batch);
  for (std::size_t row = 0; row < whole.size(); ++row) {
    EXPECT_EQ(made(batch.part({row})).front(), whole[row]) << "row " << row;
  }
}

TEST_P(TransformConformance, ARowDependsOnlyOnItsSample) {
  const Batch batch = some_batch();
  const Made whole = made(batch);
  const std::vector<std::size_t> order = {10, 3, 3, 0, 9, 1};
  const Made moved = made(batch.part(order));
  for (std::size_t k = 0; k < order.size(); ++k) EXPECT_EQ(moved[k], whole[order[k]]);
}

TEST_P(TransformConformance, ARequestWithoutRowsWritesNothing) {
  EXPECT_TRUE(made(Batch{}, {}, {.gap = 8, .offset = 8}).empty());
}

TEST_P(TransformConformance, PaddingIsTransformedLikeAnyRow) {
  Batch batch = some_batch();
  const Made whole = made(batch);
  batch.indices[4] = -1;
  const Made padded = made(batch);
  EXPECT_EQ(padded, made(batch));
  for (std::size_t row = 0; row < whole.size(); ++row) {
    if (row == 4) continue;
    EXPECT_EQ(padded[row], whole[row]);
  }
}

TEST_P(TransformConformance, MemoryInUseDoesNotChangeTheOutput) {
  const Batch batch = some_batch();
  const Made expected = made(batch);
  Memory memory;
  std::byte* kept = memory.allocate(100);
  std::memset(kept, 0x5A, 100);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(made(batch, {}, {}, memory), expected);
  EXPECT_EQ(Bytes(kept, kept + 100), Bytes(100, std::byte{0x5A}));
}

TEST_P(TransformConformance, ManyThreadsMakeTheSameBytes) {
  const Batch batch = some_batch();
  const Made expected = made(batch);
  std::vector<Made> results(4);
  {
    std::vector<std::jthread> threads;
    for (Made& result : results) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i) result = made(batch);
      });
    }
  }
  for (const Made& result : results) EXPECT_EQ(result, expected);
}

TEST_P(TransformConformance, DrawsDependOnSeedEpochSampleAndStageOnly) {
  const Batch batch = some_batch();
  const Made expected = made(batch);
  EXPECT_EQ(made(batch), expected);
  std::vector<Batch> others(4, batch);
  others[0].seed.low ^= 1;
  others[1].seed.high ^= 1;
  others[2].stage += 1;
  for (std::uint32_t& epoch : others[3].epochs) epoch += 1;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const bool differs = GetParam().random || (GetParam().origin && i == 3);
    EXPECT_EQ(made(others[i]) != expected, differs) << "change " << i;
  }
}

TEST_P(TransformConformance, AChainWithOneStageGivesTheSameOutput) {
  Batch batch = some_batch();
  batch.stage = static_cast<std::uint32_t>(transform().kind());
  const Made expected = made(batch);
  const Chain chain(input(), {GetParam().transform});
  const Columns source(input(), batch.rows(), {});
  fill(source, batch);
  const Columns target(chain.output(), batch.rows(), {.gap = 3, .offset = 1});
  Memory memory;
  Rows rows{target.columns(), memory};
  chain.run(batch.request(), {source.columns(), memory}, rows);
  const Flow flow = transform().flow(input());
  std::size_t made_field = 0;
  for (std::size_t i = 0; i < flow.from.size(); ++i) {
    target.expect_guards_intact(i);
    const bool is_made = flow.from[i] == Flow::kMade;
    for (std::int64_t k = 0; k < batch.rows(); ++k) {
      const auto row = static_cast<std::size_t>(k);
      EXPECT_EQ(target.row(i, k),
                is_made ? expected[row][made_field]
                        : source.row(static_cast<std::size_t>(flow.from[i]), k));
    }
    if (is_made) ++made_field;
  }
}

inline std::string case_name(const testing::TestParamInfo<TransformCase>& info) {
  return info.param.name;
}

}  // namespace millstream::conformance
