#include "source/source_conformance.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr char kUntouched = '\x5A';

/// A dense buffer for a batch of one field.
struct Target {
  Target(const Field& field, DType dtype, std::size_t rows, std::int64_t gap = 0)
      : bytes(byte_size(dtype) * field.shape.elements()),
        stride(bytes + gap),
        buffer(rows * static_cast<std::size_t>(stride) + 1, kUntouched),
        column{dtype, field.shape, reinterpret_cast<std::byte*>(buffer.data()), stride,
               nullptr} {}
  std::string_view row(std::size_t k) const {
    return {buffer.data() + static_cast<std::int64_t>(k) * stride,
            static_cast<std::size_t>(bytes)};
  }

  std::int64_t bytes;
  std::int64_t stride;
  std::string buffer;
  Column column;
};

std::vector<Column> columns_of(const std::vector<std::unique_ptr<Target>>& targets) {
  std::vector<Column> columns;
  for (const auto& target : targets) columns.push_back(target->column);
  return columns;
}

std::vector<std::int64_t> scattered(std::int64_t size, std::size_t count) {
  std::vector<std::int64_t> indices;
  std::uint64_t state = 1;
  for (std::size_t k = 0; k < count; ++k) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    indices.push_back(static_cast<std::int64_t>(state >> 33) % size);
  }
  return indices;
}

std::vector<std::int64_t> in_order(std::int64_t size) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

}  // namespace

std::string case_name(const testing::TestParamInfo<SourceCase>& info) {
  return info.param.name;
}

void PrintTo(const SourceCase& source_case, std::ostream* out) {
  *out << source_case.name;
}

TrueField counted(const Field& field, std::int64_t rows) {
  constexpr std::int64_t kPeriod = 5000;  // the values repeat after this many rows
  const auto bytes = static_cast<std::size_t>(rows * byte_size(field));
  TrueField truth{field, {}};
  visit(field.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (std::int64_t i = 0; i < kPeriod && truth.bytes.size() < bytes; ++i) {
      truth.bytes +=
          raw(converted<T>(static_cast<std::int32_t>((i * 7 + i / 50) % 100)));
    }
  });
  while (truth.bytes.size() < bytes) truth.bytes += truth.bytes;
  truth.bytes.resize(bytes);
  return truth;
}

void SourceConformance::SetUp() { source_ = GetParam().open(folder_); }

std::vector<std::int64_t> SourceConformance::some(std::size_t most) const {
  std::size_t bytes = 1;
  for (const Field& field : source_->schema()) {
    bytes += static_cast<std::size_t>(byte_size(field));
  }
  return scattered(size(), std::min(most, std::max<std::size_t>(4'000'000 / bytes, 5)));
}

std::string_view SourceConformance::truth(std::size_t field, std::int64_t index) const {
  const TrueField& all = GetParam().truth[field];
  const auto bytes = static_cast<std::size_t>(byte_size(all.field));
  return std::string_view(all.bytes).substr(static_cast<std::size_t>(index) * bytes,
                                            bytes);
}

void SourceConformance::expect_read(const std::vector<std::int64_t>& indices,
                                    std::int64_t gap) const {
  const Schema& schema = source_->schema();
  std::vector<std::unique_ptr<Target>> targets;
  for (const Field& field : schema) {
    targets.push_back(
        std::make_unique<Target>(field, field.dtype, indices.size(), gap));
  }
  auto columns = columns_of(targets);
  Memory memory;
  read_samples(*source_, indices, columns, memory);
  for (std::size_t f = 0; f < schema.size(); ++f) {
    const Target& target = *targets[f];
    for (std::size_t k = 0; k < indices.size(); ++k) {
      ASSERT_EQ(target.row(k), truth(f, indices[k]))
          << schema[f].name << ", row " << k << ", sample " << indices[k];
      const std::string_view between(target.row(k).data() + target.bytes,
                                     static_cast<std::size_t>(gap));
      ASSERT_EQ(between.find_first_not_of(kUntouched), std::string_view::npos);
    }
    ASSERT_EQ(target.buffer.back(), kUntouched);
  }
}

TEST_P(SourceConformance, HasTheExpectedSchemaAndSize) {
  ASSERT_EQ(source_->schema().size(), GetParam().truth.size());
  for (std::size_t f = 0; f < source_->schema().size(); ++f) {
    const TrueField& all = GetParam().truth[f];
    EXPECT_EQ(str(source_->schema()[f]), str(all.field));
    EXPECT_EQ(size() * byte_size(all.field),
              static_cast<std::int64_t>(all.bytes.size()));
  }
  EXPECT_GT(size(), 0);
}

TEST_P(SourceConformance, ReadsInAnyOrderAndTheSameEveryTime) {
  const auto forward = in_order(size());
  expect_read(forward);
  expect_read(forward);
  expect_read({forward.rbegin(), forward.rend()});
  for (const std::int64_t index : forward) expect_read({index});
  expect_read(some(150));
}

TEST_P(SourceConformance, ReadsDuplicatesAndNoSamples) {
  expect_read({0, 0, size() - 1, 0, size() - 1, size() - 1});
  expect_read(std::vector<std::int64_t>(70, size() / 2));
  expect_read({});
}

TEST_P(SourceConformance, WritesRowsWithGaps) {
  for (const std::int64_t gap : {1, 3, 64}) expect_read(some(40), gap);
  expect_read(in_order(size()), 5);
}

TEST_P(SourceConformance, ViewsEqualCopies) {
  const Schema& schema = source_->schema();
  Memory memory;
  for (int round = 0; round < 3; ++round) {
    memory.reset();
    const auto indices = some(60);
    std::vector<std::vector<std::byte*>> rows(
        schema.size(), std::vector<std::byte*>(indices.size(), nullptr));
    std::vector<Column> columns;
    for (std::size_t f = 0; f < schema.size(); ++f) {
      columns.push_back({schema[f].dtype, schema[f].shape, nullptr, 0, rows[f].data()});
    }
    read_samples(*source_, indices, columns, memory);
    for (std::size_t f = 0; f < schema.size(); ++f) {
      for (std::size_t k = 0; k < indices.size(); ++k) {
        const std::string_view expected = truth(f, indices[k]);
        ASSERT_EQ(std::memcmp(rows[f][k], expected.data(), expected.size()), 0)
            << schema[f].name << ", row " << k << ", sample " << indices[k];
      }
    }
  }
}

TEST_P(SourceConformance, ConvertsWhileItReads) {
  const Schema& schema = source_->schema();
  const auto indices = some(50);
  for (const DType dtype : {DType::kInt32, DType::kFloat32, DType::kFloat64}) {
    std::vector<std::unique_ptr<Target>> targets;
    for (const Field& field : schema) {
      targets.push_back(std::make_unique<Target>(field, dtype, indices.size(), 3));
    }
    auto columns = columns_of(targets);
    Memory memory;
    read_samples(*source_, indices, columns, memory);
    for (std::size_t f = 0; f < schema.size(); ++f) {
      const Convert convert = converter(schema[f].dtype, dtype);
      for (std::size_t k = 0; k < indices.size(); ++k) {
        const std::string_view stored = truth(f, indices[k]);
        std::string expected(targets[f]->row(k).size(), '\0');
        convert(reinterpret_cast<const std::byte*>(stored.data()),
                reinterpret_cast<std::byte*>(expected.data()),
                schema[f].shape.elements());
        ASSERT_EQ(targets[f]->row(k), expected) << schema[f].name << ", row " << k;
      }
    }
  }
}

TEST_P(SourceConformance, ReadsBigBatches) { expect_read(some(20'000)); }

TEST_P(SourceConformance, AcceptsHints) {
  source_->prepare({});
  source_->prepare(in_order(size()));
  source_->prepare(some(1000));
  source_->prepare(std::vector<std::int64_t>(10, size() - 1));
  expect_read(some(20));
}

TEST_P(SourceConformance, IsThreadSafe) {
  const Schema& schema = source_->schema();
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        Memory memory;
        for (std::size_t round = 0; round < 8; ++round) {
          const auto indices = some(10 + 7 * thread + round);
          source_->prepare(indices);
          std::vector<std::unique_ptr<Target>> targets;
          for (const Field& field : schema) {
            targets.push_back(
                std::make_unique<Target>(field, field.dtype, indices.size()));
          }
          auto columns = columns_of(targets);
          memory.reset();
          read_samples(*source_, indices, columns, memory);
          for (std::size_t f = 0; f < schema.size(); ++f) {
            for (std::size_t k = 0; k < indices.size(); ++k) {
              if (targets[f]->row(k) != truth(f, indices[k])) ++wrong;
            }
          }
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace millstream
