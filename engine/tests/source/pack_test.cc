#include "millstream/source/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/source/windows.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

constexpr std::int64_t kRows = 1300;

/// Small rows of several sizes, and one that is too large to pack.
std::vector<TrueField> truth() {
  std::vector<TrueField> fields = {counted({"a", DType::kUint8, {}}, kRows),
                                   counted({"b", DType::kFloat64, {}}, kRows),
                                   counted({"large", DType::kInt16, {40}}, kRows),
                                   counted({"c", DType::kInt64, {8}}, kRows),
                                   counted({"d", DType::kFloat32, {3}}, kRows),
                                   counted({"e", DType::kBool, {}}, kRows)};
  return fields;
}

/// Arrays over copies of the bytes. Those with `backwards` have negative strides.
ArraysSource source_of(const std::vector<TrueField>& fields, bool backwards = false) {
  std::vector<Array> arrays;
  for (const TrueField& field : fields) {
    const std::int64_t row = byte_size(field.field);
    auto bytes = std::make_shared<std::string>(field.bytes);
    if (backwards) {
      for (std::int64_t k = 0; k < kRows; ++k) {
        std::memcpy(bytes->data() + (kRows - 1 - k) * row, field.bytes.data() + k * row,
                    static_cast<std::size_t>(row));
      }
    }
    const auto* data = reinterpret_cast<const std::byte*>(bytes->data());
    arrays.push_back({field.field, kRows, backwards ? data + (kRows - 1) * row : data,
                      backwards ? -row : row, bytes});
  }
  return ArraysSource(std::move(arrays));
}

std::shared_ptr<const Source> packed_source(bool backwards) {
  return std::make_shared<ArraysSource>(packed(source_of(truth(), backwards)));
}

INSTANTIATE_TEST_SUITE_P(
    Packed, SourceConformance,
    testing::Values(
        SourceCase{"Forwards", truth(),
                   [](const TemporaryFolder&) { return packed_source(false); }},
        SourceCase{"Backwards", truth(),
                   [](const TemporaryFolder&) { return packed_source(true); }},
        SourceCase{"Unpacked", truth(),
                   [](const TemporaryFolder&) {
                     std::vector<Array> arrays = packed(source_of(truth())).arrays();
                     for (Array& array : arrays) array = unpacked(array);
                     return std::make_shared<ArraysSource>(std::move(arrays));
                   }}),
    case_name);

TEST(Pack, CopiesOnlySmallRows) {
  const ArraysSource source = source_of(truth());
  EXPECT_EQ(packable(source).arrays, 5);
  EXPECT_EQ(packable(source).bytes, kRows * (1 + 8 + 64 + 12 + 1));
  const ArraysSource made = packed(source);
  EXPECT_EQ(made.arrays()[2].data, source.arrays()[2].data);
  for (const std::size_t i : {0, 1, 3, 4, 5}) {
    EXPECT_TRUE(made.arrays()[i].packed);
    EXPECT_EQ(made.arrays()[i].stride, 86);
    EXPECT_EQ(made.arrays()[i].owner, made.arrays()[0].owner);
  }
  EXPECT_EQ(packable(made).arrays, 0);
  EXPECT_EQ(packed(made).arrays()[0].data, made.arrays()[0].data);
}

TEST(Pack, CopiesNothingForOneColumn) {
  const ArraysSource source = source_of({truth()[1], truth()[2]});
  EXPECT_EQ(packable(source).bytes, 0);
  EXPECT_EQ(packed(source).arrays()[0].data, source.arrays()[0].data);
}

TEST(Pack, ErrorsNameTheSample) {
  auto labels = std::make_shared<std::vector<std::int64_t>>(400, 5);
  (*labels)[333] = std::int64_t{1} << 40;
  const auto* data = reinterpret_cast<const std::byte*>(labels->data());
  const ArraysSource source =
      packed(ArraysSource({{{"x", DType::kInt64, {}}, 400, data, 8, labels},
                           {{"y", DType::kInt64, {}}, 400, data, 8, labels}}));
  std::vector<std::int32_t> x(400);
  std::vector<std::int32_t> y(400);
  const Column columns[] = {
      {DType::kInt32, {}, reinterpret_cast<std::byte*>(x.data()), 4, nullptr},
      {DType::kInt32, {}, reinterpret_cast<std::byte*>(y.data()), 4, nullptr}};
  std::vector<std::int64_t> indices;
  for (std::int64_t k = 0; k < 400; ++k) indices.push_back(399 - k);
  Memory memory;
  try {
    read_samples(source, indices, columns, memory);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.fields().sample, 333);
    EXPECT_EQ(error.fields().field, "x");
  }
}

TEST(Pack, WindowsAreThoseOfTheColumns) {
  constexpr std::int64_t kLength = 5;
  const auto plain = std::make_shared<ArraysSource>(source_of(truth()));
  const auto made = std::make_shared<ArraysSource>(packed(*plain));
  const SharedSource expected = windows(plain, kLength, 3);
  const SharedSource found = windows(made, kLength, 3);
  ASSERT_EQ(found->size(), expected->size());
  std::vector<std::int64_t> indices;
  for (std::int64_t k = 0; k < found->size(); ++k) {
    indices.push_back(k * 77 % found->size());
  }
  Memory memory;
  std::vector<std::vector<std::byte>> bytes;
  for (const SharedSource& source : {expected, found}) {
    std::vector<std::vector<std::byte>> outs;
    std::vector<Column> columns;
    for (const Field& field : source->schema()) {
      auto& out = outs.emplace_back(
          static_cast<std::size_t>(byte_size(field) * std::ssize(indices)));
      columns.push_back(
          {field.dtype, field.shape, out.data(), byte_size(field), nullptr});
    }
    read_samples(*source, indices, columns, memory);
    auto& all = bytes.emplace_back();
    for (const auto& out : outs) all.insert(all.end(), out.begin(), out.end());
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

}  // namespace
}  // namespace millstream
