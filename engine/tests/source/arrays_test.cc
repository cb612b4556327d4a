#include "millstream/source/arrays.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/io/mapped_file.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kGuard{0xA5};

template <typename Thrown>
std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "";
}

std::byte pattern(std::int64_t row, std::int64_t at) {
  return static_cast<std::byte>((row * 131 + at * 7 + (row >> 3)) & 0xFF);
}

/// An array whose row r holds pattern(r, 0), pattern(r, 1), ..., stored with `stride`
/// bytes from row to row, which may be zero or negative.
struct Stored {
  Stored(std::int64_t rows, std::int64_t row_bytes, std::int64_t stride) {
    const std::int64_t span = (rows - 1) * std::abs(stride) + row_bytes;
    auto bytes = std::make_shared<Bytes>(static_cast<std::size_t>(span + 1), kGuard);
    std::byte* first = bytes->data() + 1 + (stride < 0 ? (1 - rows) * stride : 0);
    for (std::int64_t row = rows - 1; row >= 0; --row) {
      for (std::int64_t at = 0; at < row_bytes; ++at) {
        first[row * stride + at] = pattern(row, at);
      }
    }
    array = {{"x", DType::kUint8, {row_bytes}}, rows, first, stride, bytes};
  }
  Array array;
};

template <typename T>
Array array_of(std::string name, std::shared_ptr<std::vector<T>> values, DType dtype,
               std::int64_t columns) {
  const auto rows = static_cast<std::int64_t>(values->size()) / columns;
  const auto stride = columns * static_cast<std::int64_t>(sizeof(T));
  return {{std::move(name), dtype, {columns}},
          rows,
          reinterpret_cast<const std::byte*>(values->data()),
          stride,
          values};
}

Array labels(std::vector<std::int64_t> values) {
  return array_of("label", std::make_shared<std::vector<std::int64_t>>(values),
                  DType::kInt64, 1);
}

const std::vector<std::int64_t> kIndices = {3, 0, 8, 8, 1, 5, 2, 7, 6, 4, 0};

void expect_rows(const Array& array, bool repeated, std::int64_t gap) {
  const ArraysSource source({array});
  const std::int64_t bytes = array.field.shape.elements();
  const std::int64_t stride = bytes + gap;
  Bytes out(kIndices.size() * static_cast<std::size_t>(stride) + 1, kGuard);
  Column column = {DType::kUint8, array.field.shape, out.data() + 1, stride, nullptr};
  Memory memory;
  read_samples(source, kIndices, {&column, 1}, memory);
  ASSERT_EQ(out.front(), kGuard);
  for (std::size_t k = 0; k < kIndices.size(); ++k) {
    const std::byte* row = out.data() + 1 + static_cast<std::int64_t>(k) * stride;
    for (std::int64_t at = 0; at < bytes; ++at) {
      ASSERT_EQ(row[at], pattern(repeated ? 0 : kIndices[k], at)) << k << ", " << at;
    }
    for (std::int64_t at = bytes; at < stride; ++at) ASSERT_EQ(row[at], kGuard);
  }
}

TEST(Arrays, RowsOfEverySizeAndStrideAreGathered) {
  for (const std::int64_t bytes : {0, 1, 2, 3, 4, 8, 13, 784, 5000}) {
    for (const std::int64_t stride :
         {bytes, bytes + 1, bytes + 24, -bytes, -bytes - 5, std::int64_t{0}}) {
      for (const std::int64_t gap : {0, 3}) {
        SCOPED_TRACE(text(bytes, " bytes, stride ", stride, ", gap ", gap));
        expect_rows(Stored(9, bytes, stride).array, stride == 0, gap);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Arrays, RowsWithoutADestinationAreViews) {
  for (const std::int64_t stride : {16, -16, 0}) {
    const Array array = Stored(9, 13, stride).array;
    const ArraysSource source({array});
    std::vector<std::byte*> rows(kIndices.size());
    Column column = {DType::kUint8, {13}, nullptr, 0, rows.data()};
    Memory memory;
    read_samples(source, kIndices, {&column, 1}, memory);
    for (std::size_t k = 0; k < rows.size(); ++k) {
      EXPECT_EQ(rows[k], array.data + kIndices[k] * stride);
    }
  }
}

TEST(Arrays, ReadsNoIndices) {
  const ArraysSource source({Stored(9, 8, 8).array});
  Bytes out(8, kGuard);
  Column column = {DType::kUint8, {8}, out.data(), 8, nullptr};
  Memory memory;
  read_samples(source, {}, {&column, 1}, memory);
  EXPECT_EQ(out, Bytes(8, kGuard));
}

TEST(Arrays, SeveralFieldsAreReadTogetherAndConverted) {
  const auto images = std::make_shared<std::vector<std::uint8_t>>();
  for (int i = 0; i < 12; ++i) images->push_back(static_cast<std::uint8_t>(i * 20));
  const ArraysSource source(
      {array_of("image", images, DType::kUint8, 3), labels({7, -7, 1 << 30, 0})});
  EXPECT_EQ(source.size(), 4);
  EXPECT_EQ(source.schema(),
            (Schema{{"image", DType::kUint8, {3}}, {"label", DType::kInt64, {1}}}));
  EXPECT_EQ(source.traits(), Traits{});
  float pixels[6];
  std::int32_t names[2];
  Column columns[] = {
      {DType::kFloat32, {3}, reinterpret_cast<std::byte*>(pixels), 12, nullptr},
      {DType::kInt32, {1}, reinterpret_cast<std::byte*>(names), 4, nullptr}};
  Memory memory;
  const std::int64_t indices[] = {2, 1};
  read_samples(source, indices, columns, memory);
  EXPECT_EQ(std::vector<float>(pixels, pixels + 6),
            (std::vector<float>{120, 140, 160, 60, 80, 100}));
  EXPECT_EQ(names[0], 1 << 30);
  EXPECT_EQ(names[1], -7);
}

TEST(Arrays, ErrorsOfLargeIntegersNameFieldSampleAndElement) {
  const auto values = std::make_shared<std::vector<std::int64_t>>(
      std::vector<std::int64_t>{1, 2, 3, (std::int64_t{1} << 40) + 5});
  const ArraysSource source({array_of("pair", values, DType::kInt64, 2)});
  std::int32_t out[2];
  Column column = {DType::kInt32, {2}, reinterpret_cast<std::byte*>(out), 8, nullptr};
  Memory memory;
  const std::int64_t good[] = {0};
  read_samples(source, good, {&column, 1}, memory);
  EXPECT_EQ(out[1], 2);
  const std::int64_t bad[] = {1};
  EXPECT_EQ(refusal<DataError>([&] {
              read_samples(source, bad, {&column, 1}, memory);
            }),
            "pair: sample 1 holds a value of dtype int64 at element 1 that int32 "
            "cannot hold, 1099511627781; set jax_enable_x64 for 64-bit values, or "
            "store values that int32 can hold");
}

TEST(Arrays, ConvertsRowsOfAnyLengthAndStride) {
  constexpr std::int64_t kRows = 1500;
  for (const std::int64_t elements : {1, 3, 256, 257, 600}) {
    auto values = std::make_shared<std::vector<std::int64_t>>();
    for (std::int64_t i = 0; i < kRows * elements; ++i) values->push_back(i * 7 - 50);
    Array array = array_of("x", values, DType::kInt64, elements);
    array.data += (kRows - 1) * array.stride;
    array.stride = -array.stride;  // sample k is row kRows - 1 - k
    const ArraysSource source({array});
    std::vector<std::int64_t> indices;
    for (std::int64_t k = 0; k < kRows; ++k) indices.push_back(k * 77 % kRows);
    for (const std::int64_t gap : {0, 2}) {  // values between the rows of the output
      const std::int64_t step = elements + gap;
      std::vector<std::int32_t> out(static_cast<std::size_t>(kRows * step), -1);
      Column column = {DType::kInt32,
                       {elements},
                       reinterpret_cast<std::byte*>(out.data()),
                       step * 4,
                       nullptr};
      Memory memory;
      read_samples(source, indices, {&column, 1}, memory);
      for (std::int64_t k = 0; k < kRows; ++k) {
        const std::int64_t row = kRows - 1 - indices[static_cast<std::size_t>(k)];
        for (std::int64_t i = 0; i < step; ++i) {
          const auto expected = i < elements ? (row * elements + i) * 7 - 50 : -1;
          ASSERT_EQ(out[static_cast<std::size_t>(k * step + i)], expected);
        }
      }
    }
  }
}

TEST(Arrays, ErrorsOfLargeIntegersNameTheValue) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> out(1000);
  Column column = {
      DType::kInt32, {}, reinterpret_cast<std::byte*>(out.data()), 4, nullptr};
  std::vector<std::int64_t> indices(1000);
  std::iota(indices.begin(), indices.end(), 0);
  Memory memory;
  for (const std::int64_t bad : {kLowest - 1, kHighest + 1}) {
    std::vector<std::int64_t> values(1000, bad < 0 ? kLowest : kHighest);
    values[613] = values[700] = bad;
    const ArraysSource source({labels(values)});
    EXPECT_EQ(refusal<DataError>([&] {
                read_samples(source, indices, {&column, 1}, memory);
              }),
              text("label: sample 613 holds a value of dtype int64 at element 0 that "
                   "int32 cannot "
                   "hold, ",
                   bad,
                   "; set jax_enable_x64 for 64-bit values, or store values that int32 "
                   "can hold"));
    std::swap(indices[613], indices[0]);
    read_samples(source, std::span(indices).subspan(1, 612), {&column, 1}, memory);
    EXPECT_EQ(out[0], values[0]);
    std::swap(indices[613], indices[0]);
  }
}

TEST(Arrays, ErrorNamesUnequalLengths) {
  Array other = labels({1, 2, 3});
  other.field.name = "weight";
  EXPECT_EQ(refusal<ArgumentError>([&] {
              ArraysSource source({labels({1, 2}), other});
            }),
            "all leaves must share the leading dimension: 'label' has 2 rows, 'weight' "
            "has 3");
}

TEST(Arrays, RejectsEmptyArraysAndNoArrays) {
  EXPECT_EQ(refusal<ArgumentError>([] { ArraysSource source({labels({})}); }),
            "'label' is empty: it has 0 rows");
  EXPECT_EQ(refusal<ArgumentError>([] { ArraysSource source({}); }),
            "a source needs at least one array");
}

TEST(Arrays, KeepTheirOwnersAlive) {
  Stored stored(4, 8, 8);
  const std::weak_ptr<const void> owner = stored.array.owner;
  {
    const ArraysSource source({stored.array});
    stored.array.owner.reset();
    EXPECT_FALSE(owner.expired());
  }
  EXPECT_TRUE(owner.expired());
}

TEST(Arrays, ManyThreadsReadAtOnce) {
  const ArraysSource source({Stored(9, 784, 800).array});
  std::vector<Bytes> made(4, Bytes(kIndices.size() * 784));
  {
    std::vector<std::jthread> threads;
    for (Bytes& out : made) {
      threads.emplace_back([&] {
        Memory memory;
        for (int i = 0; i < 50; ++i) {
          Column column = {DType::kUint8, {784}, out.data(), 784, nullptr};
          read_samples(source, kIndices, {&column, 1}, memory);
        }
      });
    }
  }
  for (const Bytes& out : made) EXPECT_EQ(out, made.front());
}

TEST(ArraysSource, DetectsATruncatedMappedFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", std::string(40'000, 'x'));
  const MappedFile file{File(path)};
  const Array array = {{"x", DType::kUint8, {10}},
                       4000,
                       file.data(),
                       10,
                       {},
                       std::make_shared<const MappedFile>(path, file.range(), 0)};
  const ArraysSource source({array});
  const auto read = [&](std::int64_t index) {
    std::byte* row = nullptr;
    std::vector<Column> columns = {{DType::kUint8, {10}, nullptr, 0, &row}};
    Memory memory;
    const std::string error = refusal<IoError>(
        [&] { read_samples(source, std::span(&index, 1), columns, memory); });
    EXPECT_FALSE(file.range().holds(row)) << "a view that nobody guards";
    return error;
  };
  EXPECT_EQ(read(3999), "");
  for (const std::uintmax_t size : {39'995u, 20'000u}) {
    std::filesystem::resize_file(path, size);
    const std::string error = read(3999);
    EXPECT_NE(error.find(path.string() + ": offset"), std::string::npos) << error;
    EXPECT_NE(error.find(text("has ", size, " now")), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace millstream
