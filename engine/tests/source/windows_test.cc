#include "millstream/source/windows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "millstream/codec/npy.h"
#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/npy.h"
#include "millstream/source/packed.h"
#include "millstream/source/recast.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

constexpr std::int64_t kRows = 60;
const std::vector<TrueField> kTruth = {counted({"x", DType::kUint8, {3, 2}}, kRows),
                                       counted({"y", DType::kInt64, {}}, kRows)};

/// The rows [begin, begin + count) of a field.
TrueField ranged(const TrueField& all, std::int64_t begin, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(byte_size(all.field));
  return {all.field, all.bytes.substr(static_cast<std::size_t>(begin) * bytes,
                                      static_cast<std::size_t>(count) * bytes)};
}

std::vector<TrueField> ranged(const std::vector<TrueField>& all, std::int64_t begin,
                              std::int64_t count) {
  std::vector<TrueField> fields;
  for (const TrueField& field : all) fields.push_back(ranged(field, begin, count));
  return fields;
}

/// The windows over some rows.
std::vector<TrueField> windows_of(const std::vector<TrueField>& all,
                                  std::int64_t length, std::int64_t stride = 1) {
  std::vector<TrueField> fields;
  for (const TrueField& field : all) {
    const std::int64_t rows =
        static_cast<std::int64_t>(field.bytes.size()) / byte_size(field.field);
    TrueField& made = fields.emplace_back(TrueField{stacked(field.field, length), {}});
    for (std::int64_t i = 0; i + length <= rows; i += stride) {
      made.bytes += ranged(field, i, length).bytes;
    }
  }
  return fields;
}

/// The rows in memory, `gap` bytes apart.
SharedSource in_memory(const std::vector<TrueField>& truth, std::int64_t gap = 0) {
  std::vector<Array> arrays;
  for (const TrueField& field : truth) {
    const std::int64_t row = byte_size(field.field);
    const auto rows = static_cast<std::int64_t>(field.bytes.size()) / row;
    const auto bytes = std::make_shared<std::string>();
    for (std::int64_t i = 0; i < rows; ++i) {
      *bytes += ranged(field, i, 1).bytes;
      if (i + 1 < rows) bytes->append(static_cast<std::size_t>(gap), '\x7F');
    }
    arrays.push_back({field.field, rows,
                      reinterpret_cast<const std::byte*>(bytes->data()), row + gap,
                      bytes});
  }
  return std::make_shared<ArraysSource>(std::move(arrays));
}

std::string file_of(const TrueField& field) {
  std::vector<std::int64_t> extents = {static_cast<std::int64_t>(field.bytes.size()) /
                                       byte_size(field.field)};
  for (const auto extent : field.field.shape.extents()) extents.push_back(extent);
  return npy_header(field.field.dtype, Shape(extents)) + field.bytes;
}

/// One .npy file per field and per number of rows in `shards`.
SharedSource on_disk(const TemporaryFolder& folder, const std::vector<TrueField>& truth,
                     const std::vector<std::vector<std::int64_t>>& shards) {
  std::vector<FieldFiles> fields;
  for (std::size_t f = 0; f < truth.size(); ++f) {
    FieldFiles& files = fields.emplace_back(FieldFiles{truth[f].field.name, {}});
    std::int64_t begin = 0;
    for (const std::int64_t rows : shards[f]) {
      const std::string name = text(truth[f].field.name, files.paths.size(), ".npy");
      files.paths.push_back(folder.write(name, file_of(ranged(truth[f], begin, rows))));
      begin += rows;
    }
  }
  return std::make_shared<ColumnsSource>(npy_source(fields));
}

std::string records(const std::vector<TrueField>& truth) {
  std::string bytes;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (const TrueField& field : truth) bytes += ranged(field, i, 1).bytes;
  }
  return bytes;
}

SharedSource recast(const SharedSource& source, bool transposed) {
  return std::make_shared<Recast>(
      source, std::vector<RecastField>{
                  {{"b", DType::kInt64, {}}, 1, false},
                  {{"a", DType::kUint8, Shape{transposed ? 2 : 3, transposed ? 3 : 2}},
                   0,
                   transposed}});
}

/// The fields of `recast`.
std::vector<TrueField> recast_truth(bool transposed) {
  TrueField matrix = kTruth[0];
  TrueField number = kTruth[1];
  matrix.field = {"a", DType::kUint8, Shape{transposed ? 2 : 3, transposed ? 3 : 2}};
  number.field.name = "b";
  for (std::size_t row = 0; transposed && row < kRows; ++row) {
    for (std::size_t i = 0; i < 6; ++i) {
      matrix.bytes[row * 6 + i] = kTruth[0].bytes[row * 6 + i % 3 * 2 + i / 3];
    }
  }
  return {number, matrix};
}

INSTANTIATE_TEST_SUITE_P(
    Windows, SourceConformance,
    testing::Values(
        SourceCase{
            "Arrays", windows_of(kTruth, 7),
            [](const TemporaryFolder&) { return windows(in_memory(kTruth), 7); }},
        SourceCase{
            "ArraysWithStride", windows_of(kTruth, 8, 5),
            [](const TemporaryFolder&) { return windows(in_memory(kTruth), 8, 5); }},
        SourceCase{
            "ArraysWithGaps", windows_of(kTruth, 8, 5),
            [](const TemporaryFolder&) { return windows(in_memory(kTruth, 3), 8, 5); }},
        SourceCase{"AllRows", windows_of(kTruth, kRows),
                   [](const TemporaryFolder&) {
                     return windows(in_memory(kTruth), kRows, 3);
                   }},
        SourceCase{"SingleRows", windows_of(kTruth, 1, 2),
                   [](const TemporaryFolder& folder) {
                     return windows(on_disk(folder, kTruth, {{60}, {60}}), 1, 2);
                   }},
        SourceCase{"Npy", windows_of(kTruth, 6, 6),
                   [](const TemporaryFolder& folder) {
                     return windows(on_disk(folder, kTruth, {{60}, {60}}), 6, 6);
                   }},
        SourceCase{"Shards", windows_of(kTruth, 5),
                   [](const TemporaryFolder& folder) {
                     return windows(
                         on_disk(folder, kTruth, {{20, 3, 0, 37}, {20, 3, 0, 37}}), 5);
                   }},
        SourceCase{"ShardsOfDifferentLengths", windows_of(kTruth, 9, 2),
                   [](const TemporaryFolder& folder) {
                     return windows(
                         on_disk(folder, kTruth, {{20, 30, 10}, {1, 24, 35}}), 9, 2);
                   }},
        SourceCase{"ShortShards", windows_of(kTruth, 12),
                   [](const TemporaryFolder& folder) {
                     const std::vector<std::int64_t> shards(6, 10);
                     return windows(on_disk(folder, kTruth, {shards, shards}), 12);
                   }},
        SourceCase{"InterleavedRecords", windows_of(kTruth, 5),
                   [](const TemporaryFolder& folder) {
                     const Schema schema = {kTruth[0].field, kTruth[1].field};
                     return windows(
                         std::make_shared<ColumnsSource>(packed_source(
                             folder.write("x.bin", records(kTruth)), schema, 0)),
                         5);
                   }},
        SourceCase{"Records", windows_of({kTruth[1]}, 5),
                   [](const TemporaryFolder& folder) {
                     const auto path =
                         folder.write("x.bin", "header" + records({kTruth[1]}));
                     return windows(std::make_shared<ColumnsSource>(
                                        packed_source(path, {kTruth[1].field}, 6)),
                                    5);
                   }},
        SourceCase{"Concatenated", windows_of(kTruth, 6),
                   [](const TemporaryFolder& folder) {
                     const auto source =
                         std::make_shared<Concatenated>(std::vector<SharedSource>{
                             in_memory(ranged(kTruth, 0, 10)),
                             in_memory(ranged(kTruth, 10, 3)),
                             on_disk(folder, ranged(kTruth, 13, 40), {{4, 36}, {40}}),
                             in_memory(ranged(kTruth, 53, 7), 1)});
                     return windows(source, 6);
                   }},
        SourceCase{"Slice", windows_of(ranged(kTruth, 11, 30), 4, 3),
                   [](const TemporaryFolder& folder) {
                     const auto all = on_disk(folder, kTruth, {{25, 35}, {25, 35}});
                     return windows(std::make_shared<Subset>(all, 11, 30), 4, 3);
                   }},
        SourceCase{"Subset", windows_of(ranged(kTruth, 11, 30), 4, 3),
                   [](const TemporaryFolder&) {
                     std::vector<std::int64_t> samples;
                     for (std::int64_t i = 11; i < 41; ++i) samples.push_back(i);
                     return windows(
                         std::make_shared<Subset>(in_memory(kTruth), samples), 4, 3);
                   }},
        SourceCase{"Zipped", windows_of(kTruth, 10),
                   [](const TemporaryFolder& folder) {
                     return windows(std::make_shared<Zipped>(std::vector<SharedSource>{
                                        on_disk(folder, {kTruth[0]}, {{31, 29}}),
                                        in_memory({kTruth[1]}, 8)}),
                                    10);
                   }},
        SourceCase{"Recast", windows_of(recast_truth(false), 7),
                   [](const TemporaryFolder&) {
                     return windows(recast(in_memory(kTruth), false), 7);
                   }},
        SourceCase{"Transposed", windows_of(recast_truth(true), 7),
                   [](const TemporaryFolder&) {
                     return windows(recast(in_memory(kTruth), true), 7);
                   }},
        SourceCase{"WindowsOfWindows", windows_of(windows_of(kTruth, 4, 2), 3),
                   [](const TemporaryFolder&) {
                     return windows(windows(in_memory(kTruth), 4, 2), 3);
                   }}),
    case_name);

/// Whether windows over a source are read from an array or a file in one piece each.
bool is_direct(const SharedSource& made) {
  return dynamic_cast<const GatheredWindows*>(made.get()) == nullptr;
}

TEST(Windows, AreRowsOfTheSameMemory) {
  const auto source = in_memory(kTruth);
  const auto& array = dynamic_cast<const ArraysSource&>(*source).arrays()[0];
  const auto made = windows(source, 7, 5);
  std::vector<std::byte*> rows(4);
  std::vector<std::byte*> others(4);
  const auto& schema = made->schema();
  const std::vector<Column> columns = {
      {schema[0].dtype, schema[0].shape, nullptr, 0, rows.data()},
      {schema[1].dtype, schema[1].shape, nullptr, 0, others.data()}};
  Memory memory;
  read_samples(*made, std::vector<std::int64_t>{0, 3, 10, 1}, columns, memory);
  EXPECT_EQ(rows[0], array.data);
  EXPECT_EQ(rows[1], array.data + 3 * 5 * 6);
  EXPECT_EQ(rows[2], array.data + 10 * 5 * 6);
  EXPECT_EQ(rows[3], array.data + 5 * 6);
}

TEST(Windows, GatherOnlyIfTheyMust) {
  const TemporaryFolder folder;
  EXPECT_TRUE(is_direct(windows(in_memory(kTruth), 7)));
  EXPECT_FALSE(is_direct(windows(in_memory(kTruth, 1), 7)));
  EXPECT_TRUE(is_direct(windows(on_disk(folder, kTruth, {{60}, {60}}), 7)));
  const Schema schema = {kTruth[0].field, kTruth[1].field};
  const auto path = folder.write("x.bin", records(kTruth));
  const auto packed = std::make_shared<ColumnsSource>(packed_source(path, schema, 0));
  EXPECT_FALSE(is_direct(windows(packed, 7)));
  // 21 windows in the first file, 4 across the border, 31 in the second.
  const auto shards = windows(on_disk(folder, kTruth, {{25, 35}, {25, 35}}), 5);
  const auto& parts = dynamic_cast<const Concatenated&>(*shards).sources();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0]->size(), 21);
  EXPECT_EQ(parts[1]->size(), 4);
  EXPECT_EQ(parts[2]->size(), 31);
  EXPECT_TRUE(is_direct(parts[0]));
  EXPECT_FALSE(is_direct(parts[1]));
  EXPECT_TRUE(is_direct(parts[2]));
}

TEST(Windows, RejectWrongArguments) {
  const auto source = in_memory(kTruth);
  EXPECT_EQ(error_of<ArgumentError>([&] { windows(source, 61); }),
            "a window over 60 samples must have from 1 to 60 of them, not 61");
  EXPECT_THROW(windows(source, 0), ArgumentError);
  EXPECT_THROW(windows(nullptr, 1), ArgumentError);
  EXPECT_EQ(error_of<ArgumentError>([&] { windows(source, 2, 0); }),
            "windows must be at least 1 sample apart, not 0");
  EXPECT_EQ(error_of<ArgumentError>([&] { GatheredWindows(source, 5, 50, 7); }),
            "7 windows of 5 samples from sample 50 on are not within [0, 60)");
  EXPECT_NO_THROW(GatheredWindows(source, 5, 50, 6));
  EXPECT_THROW(GatheredWindows(source, 5, -1, 2), ArgumentError);
  EXPECT_THROW(GatheredWindows(source, 5, 0, 0), ArgumentError);
}

/// Ten samples whose value is the index. Records the requests.
class RecordingSource final : public Source {
 public:
  std::int64_t size() const noexcept override { return 10; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .workers = 3}; }
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    samples.emplace_back(request.indices.begin(), request.indices.end());
    epochs.assign(request.epochs.begin(), request.epochs.end());
    seed = request.seed;
    context = request.context;
    for (std::int64_t k = 0; k < request.rows(); ++k) {
      std::memcpy(rows.columns[0].row(k), &request.indices[static_cast<std::size_t>(k)],
                  8);
    }
  }
  void prepare(std::span<const std::int64_t> indices) const noexcept override {
    prepared.assign(indices.begin(), indices.end());
  }

  mutable std::vector<std::vector<std::int64_t>> samples;
  mutable std::vector<std::int64_t> prepared;
  mutable std::vector<std::uint32_t> epochs;
  mutable Seed seed;
  mutable CallContext context;

 private:
  Schema schema_ = {{"x", DType::kInt64, {}}};
};

TEST(Windows, ReadAllSamplesOfABatchAtOnce) {
  const auto source = std::make_shared<RecordingSource>();
  const auto made = windows(source, 3, 2);
  EXPECT_EQ(made->size(), 4);
  EXPECT_EQ(made->traits(), source->traits());
  const std::vector<std::int64_t> indices = {3, 0};
  const std::vector<std::uint32_t> epochs = {5, 6};
  std::vector<std::int64_t> to(6);
  const std::vector<Column> columns = {
      {DType::kInt64, {3}, reinterpret_cast<std::byte*>(to.data()), 24, nullptr}};
  Memory memory;
  Rows rows{columns, memory};
  Failures failures;
  HostValues host_values;
  made->read({indices,
              epochs,
              {3, 4},
              100,
              {.host_values = &host_values, .failures = &failures}},
             rows);
  EXPECT_EQ(to, (std::vector<std::int64_t>{6, 7, 8, 0, 1, 2}));
  EXPECT_EQ(source->samples.size(), 1u);
  EXPECT_EQ(source->epochs, (std::vector<std::uint32_t>{5, 5, 5, 6, 6, 6}));
  EXPECT_EQ(source->seed, (Seed{3, 4}));
  EXPECT_EQ(source->context.failures, &failures);
  EXPECT_EQ(source->context.host_values, nullptr);
  made->prepare(indices);
  EXPECT_EQ(source->prepared, (std::vector<std::int64_t>{6, 7, 8, 0, 1, 2}));
}

TEST(Windows, ErrorsNameTheFileAndTheFirstRow) {
  const TemporaryFolder folder;
  TrueField wide = kTruth[1];
  wide.bytes.replace(8 * 30, 8, raw(std::int64_t{1} << 33));
  const auto made = windows(on_disk(folder, {wide}, {{60}}), 4, 2);
  std::vector<std::int32_t> to(8);
  const std::vector<Column> columns = {
      {DType::kInt32, {4}, reinterpret_cast<std::byte*>(to.data()), 16, nullptr}};
  Memory memory;
  EXPECT_EQ(error_of<DataError>([&] {
              read_samples(*made, std::vector<std::int64_t>{2, 14}, columns, memory);
            }),
            (folder.path() / "y0.npy").string() +
                ": y: sample 28 holds a value of dtype int64 at element 2 that int32 "
                "cannot hold, 8589934592"
                "; set jax_enable_x64 for 64-bit values, or store values that int32 "
                "can hold");
}

TEST(Windows, ATruncatedFileIsAnError) {
  const TemporaryFolder folder;
  const auto made = windows(on_disk(folder, {kTruth[1]}, {{60}}), 4);
  std::vector<std::int64_t> to(4);
  const std::vector<Column> columns = {
      {DType::kInt64, {4}, reinterpret_cast<std::byte*>(to.data()), 32, nullptr}};
  Memory memory;
  const std::vector<std::int64_t> last = {56};
  read_samples(*made, last, columns, memory);
  std::filesystem::resize_file(folder.path() / "y0.npy", 300);
  EXPECT_THROW(read_samples(*made, last, columns, memory), IoError);
}

}  // namespace
}  // namespace millstream
