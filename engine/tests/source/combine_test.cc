#include "millstream/source/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "millstream/codec/npy.h"
#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/npy.h"
#include "millstream/source/recast.h"
#include "source/source_conformance.h"

namespace millstream {
namespace {

const Field kImage = {"image", DType::kUint8, {9, 9}};
const Field kLabel = {"label", DType::kInt64, {}};

/// Rows begin, begin + step, ... of a field, `rows` of them.
TrueField picked(const TrueField& all, std::int64_t begin, std::int64_t rows,
                 std::int64_t step = 1) {
  const std::int64_t bytes = byte_size(all.field);
  TrueField some{all.field, {}};
  for (std::int64_t k = 0; k < rows; ++k) {
    some.bytes += all.bytes.substr(static_cast<std::size_t>((begin + k * step) * bytes),
                                   static_cast<std::size_t>(bytes));
  }
  return some;
}

SharedSource in_memory(const std::vector<TrueField>& truth) {
  std::vector<Array> arrays;
  for (const TrueField& field : truth) {
    const auto bytes = std::make_shared<std::string>(field.bytes);
    const std::int64_t row = byte_size(field.field);
    arrays.push_back({field.field, static_cast<std::int64_t>(bytes->size()) / row,
                      reinterpret_cast<const std::byte*>(bytes->data()), row, bytes});
  }
  return std::make_shared<ArraysSource>(std::move(arrays));
}

SharedSource on_disk(const TemporaryFolder& folder, const std::string& name,
                     const std::vector<TrueField>& truth) {
  std::vector<FieldFiles> fields;
  for (const TrueField& field : truth) {
    std::vector<std::int64_t> extents = {static_cast<std::int64_t>(field.bytes.size()) /
                                         byte_size(field.field)};
    for (const auto extent : field.field.shape.extents()) extents.push_back(extent);
    fields.push_back(
        {field.field.name,
         {folder.write(name + field.field.name + ".npy",
                       npy_header(field.field.dtype, Shape(extents)) + field.bytes)}});
  }
  return std::make_shared<ColumnsSource>(npy_source(fields));
}

const std::vector<TrueField> kTruth = {counted(kImage, 60), counted(kLabel, 60)};

std::vector<TrueField> both(std::int64_t begin, std::int64_t rows,
                            std::int64_t step = 1) {
  return {picked(kTruth[0], begin, rows, step), picked(kTruth[1], begin, rows, step)};
}

INSTANTIATE_TEST_SUITE_P(
    Combine, SourceConformance,
    testing::Values(
        SourceCase{"Arrays", kTruth,
                   [](const TemporaryFolder&) { return in_memory(kTruth); }},
        SourceCase{"Concatenated", kTruth,
                   [](const TemporaryFolder& folder) {
                     return std::make_shared<Concatenated>(std::vector<SharedSource>{
                         in_memory(both(0, 7)), on_disk(folder, "a", both(7, 30)),
                         in_memory(both(37, 1)), on_disk(folder, "b", both(38, 22))});
                   }},
        SourceCase{"Sliced", both(5, 11, 4),
                   [](const TemporaryFolder& folder) {
                     return std::make_shared<Subset>(on_disk(folder, "a", kTruth), 5,
                                                     11, 4);
                   }},
        SourceCase{"Reversed", both(59, 60, -1),
                   [](const TemporaryFolder& folder) {
                     return std::make_shared<Subset>(on_disk(folder, "a", kTruth), 59,
                                                     60, -1);
                   }},
        SourceCase{"Subset", both(2, 19, 3),
                   [](const TemporaryFolder& folder) {
                     std::vector<std::int64_t> samples(19);
                     for (std::size_t k = 0; k < 19; ++k) {
                       samples[k] = 2 + 3 * static_cast<std::int64_t>(k);
                     }
                     return std::make_shared<Subset>(on_disk(folder, "a", kTruth),
                                                     samples);
                   }},
        SourceCase{"Zipped", kTruth,
                   [](const TemporaryFolder& folder) {
                     return std::make_shared<Zipped>(std::vector<SharedSource>{
                         on_disk(folder, "a", {kTruth[0]}), in_memory({kTruth[1]})});
                   }},
        SourceCase{"SliceOfZippedConcatenated", both(3, 50),
                   [](const TemporaryFolder& folder) {
                     const auto images =
                         std::make_shared<Concatenated>(std::vector<SharedSource>{
                             on_disk(folder, "a", {both(0, 20)[0]}),
                             on_disk(folder, "b", {both(20, 40)[0]})});
                     const auto zipped = std::make_shared<Zipped>(
                         std::vector<SharedSource>{images, in_memory({kTruth[1]})});
                     return std::make_shared<Subset>(zipped, 3, 50);
                   }}),
    case_name);

TEST(Combine, RejectsInvalidArguments) {
  const auto images = in_memory({kTruth[0]});
  const auto labels = in_memory({kTruth[1]});
  const auto few = in_memory({both(0, 5)[1]});
  EXPECT_EQ(
      error_of<ArgumentError>([&] {
        Concatenated({images, labels});
      }),
      "sources to be concatenated must have the same schema: source 0 has {image: "
      "uint8(9, 9)}, source 1 has {label: int64()}");
  EXPECT_EQ(
      error_of<ArgumentError>([&] {
        Zipped({images, few});
      }),
      "sources to be zipped must have the same size: source 0 has 60 samples, source "
      "1 has 5");
  EXPECT_EQ(error_of<ArgumentError>([&] {
              Zipped({images, images});
            }),
            "two zipped sources have a field 'image': rename one of them");
  EXPECT_EQ(error_of<ArgumentError>([&] { Subset(images, 50, 11); }),
            "a slice of 11 samples from 50 by 1 is not within [0, 60)");
  EXPECT_THROW(Subset(images, 1, std::int64_t{1} << 62, 4), ArgumentError);
  EXPECT_THROW(Subset(images, 1, 3, -1), ArgumentError);
  EXPECT_THROW(Subset(images, 0, 0), ArgumentError);
  EXPECT_EQ(error_of<ArgumentError>([&] {
              Subset(images, {1, 60});
            }),
            "sample 60 at position 1 of a subset is not within [0, 60)");
  EXPECT_THROW(Subset(images, {-1}), ArgumentError);
  EXPECT_THROW(Subset(images, {}), ArgumentError);
  EXPECT_THROW(Concatenated({}), ArgumentError);
  EXPECT_THROW(Zipped({nullptr}), ArgumentError);
}

TEST(Combine, RejectsTooManySamples) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("x.npy", npy_header(DType::kUint8, {std::int64_t{1} << 58, 0}));
  const auto most = std::make_shared<ColumnsSource>(
      npy_source(std::vector<FieldFiles>{{"x", std::vector(31, path)}}));
  EXPECT_NE(error_of<ArgumentError>([&] {
              Concatenated({most, most});
            }).find("fewer than 2^63 samples in all: source 1 has"),
            std::string::npos);
}

TEST(Combine, ChecksConvertedValues) {
  TrueField wide = both(0, 3)[1];
  wide.bytes.replace(8, 8, raw(std::int64_t{1} << 33));
  const TemporaryFolder folder;
  const Concatenated source(
      {in_memory({both(0, 3)[1]}), on_disk(folder, "wide_", {wide})});
  std::vector<std::int32_t> to(2);
  std::vector<Column> columns = {
      {DType::kInt32, {}, reinterpret_cast<std::byte*>(to.data()), 4, nullptr}};
  Memory memory;
  const std::vector<std::int64_t> indices = {0, 4};
  EXPECT_EQ(
      error_of<DataError>([&] { read_samples(source, indices, columns, memory); }),
      (folder.path() / "wide_label.npy").string() +
          ": label: sample 1 holds a value of dtype int64 that int32 cannot hold, "
          "8589934592"
          "; set jax_enable_x64 for 64-bit values, or store values that int32 "
          "can hold");
}

TEST(Combine, CombinesTheTraitsOfItsSources) {
  const TemporaryFolder folder;
  const auto images = in_memory({kTruth[0]});
  const auto labels = on_disk(folder, "a", {kTruth[1]});
  const Traits disk = {.waits = true, .may_fail = true};
  EXPECT_EQ(Concatenated({images, images}).traits(), Traits{});
  EXPECT_EQ(Subset(images, 0, 5).traits(), Traits{});
  EXPECT_EQ(Zipped({images, labels}).traits(), disk);
  EXPECT_EQ(Subset(labels, {1}).traits(), disk);
}

/// A pool that no test calls.
class NoPool final : public WorkerPool {
 public:
  void make(const WorkRequest&) override {}
  void close() noexcept override {}
  Block block(std::int64_t bytes) override { return Block(bytes); }
  int workers() const noexcept override { return 3; }
  bool lends_function() const noexcept override { return false; }
};

/// Ten samples of one field whose value is the index. Records the requests.
class RecordingSource final : public Source {
 public:
  using Samples = std::vector<std::int64_t>;

  explicit RecordingSource(std::string field = "x", Traits traits = {},
                           WorkerPool* worker_pool = nullptr)
      : schema_{{std::move(field), DType::kInt64, {}}},
        traits_(traits),
        worker_pool_(worker_pool) {}

  std::int64_t size() const noexcept override { return 10; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return traits_; }
  WorkerPool* worker_pool() const noexcept override { return worker_pool_; }
  void read(const Request& request, Rows& rows) const override {
    samples.assign(request.indices.begin(), request.indices.end());
    epochs.assign(request.epochs.begin(), request.epochs.end());
    seed = request.seed;
    context = request.context;
    const Column& to = rows.columns[0];
    for (std::int64_t k = 0; k < request.rows(); ++k) {
      if (to.data == nullptr) to.rows[k] = rows.memory.allocate(8);
      std::memcpy(to.row(k), &samples[static_cast<std::size_t>(k)], 8);
    }
  }
  void prepare(std::span<const std::int64_t> indices) const noexcept override {
    prepared.emplace_back(indices.begin(), indices.end());
  }

  mutable std::vector<Samples> prepared;
  mutable Samples samples;
  mutable std::vector<std::uint32_t> epochs;
  mutable Seed seed;
  mutable CallContext context;

 private:
  Schema schema_;
  Traits traits_;
  WorkerPool* worker_pool_;
};

TEST(Combine, ForwardsPrepare) {
  using All = std::vector<RecordingSource::Samples>;
  const auto first = std::make_shared<RecordingSource>("x");
  const auto second = std::make_shared<RecordingSource>("x");
  const Concatenated all({first, second});
  all.prepare(std::vector<std::int64_t>{3, 19, 1, 10, 9});
  EXPECT_EQ(first->prepared, (All{{1, 3, 9}}));
  EXPECT_EQ(second->prepared, (All{{0, 9}}));
  const auto other = std::make_shared<RecordingSource>("y");
  Zipped({first, other}).prepare(std::vector<std::int64_t>{4, 2});
  Subset(first, 9, 5, -2).prepare(std::vector<std::int64_t>{0, 4});
  Recast(first, {{{"z", DType::kInt64, {}}}}).prepare(std::vector<std::int64_t>{6});
  EXPECT_EQ(first->prepared, (All{{1, 3, 9}, {4, 2}, {9, 1}, {6}}));
  EXPECT_EQ(other->prepared, (All{{4, 2}}));
}

TEST(Combine, ForwardsTraitsAndWorkerPool) {
  NoPool pool;
  const Traits first = {.cheap = false, .blocks = 4};
  const Traits second = {
      .waits = true, .cheap = false, .may_fail = true, .blocks = 2, .workers = 3};
  const auto native = std::make_shared<RecordingSource>("x", first);
  const auto function = std::make_shared<RecordingSource>("x", second, &pool);
  const auto other = std::make_shared<RecordingSource>("y", second, &pool);
  const Traits both = {
      .waits = true, .cheap = false, .may_fail = true, .blocks = 4, .workers = 3};
  EXPECT_EQ(Concatenated({native, function}).traits(), both);
  EXPECT_EQ(Concatenated({native, function}).worker_pool(), &pool);
  EXPECT_EQ(Zipped({native, other}).traits(), both);
  EXPECT_EQ(Zipped({native, other}).worker_pool(), &pool);
  EXPECT_EQ(Subset(function, {1}).traits(), second);
  EXPECT_EQ(Subset(function, {1}).worker_pool(), &pool);
  const Recast recast(function, {{{"z", DType::kInt64, {}}}});
  EXPECT_EQ(recast.traits(), second);
  EXPECT_EQ(recast.worker_pool(), &pool);
}

TEST(Recast, MayFailIfItChecksValues) {
  const auto source = std::make_shared<RecordingSource>();
  const auto recast = [&](DType dtype) {
    return Recast(source, {{{"x", dtype, {}}}}).traits();
  };
  EXPECT_EQ(recast(DType::kInt64), Traits{});
  EXPECT_EQ(recast(DType::kFloat32), Traits{});
  EXPECT_EQ(recast(DType::kInt32), Traits{.may_fail = true});
  EXPECT_EQ(recast(DType::kUint64), Traits{});
}

TEST(Combine, ForwardsTheWholeRequest) {
  const auto first = std::make_shared<RecordingSource>("x");
  const auto second = std::make_shared<RecordingSource>("x");
  const auto other = std::make_shared<RecordingSource>("y");
  const auto concatenated =
      std::make_shared<Concatenated>(std::vector<SharedSource>{first, second});
  const Subset source(concatenated, 19, 20, -1);  // in reverse
  const std::vector<std::int64_t> indices = {0, 12, 9, 19};
  const std::vector<std::uint32_t> epochs = {5, 6, 7, 8};
  Failures failures;
  const std::atomic<bool> cancelled = false;
  const std::atomic<bool> dropped = false;
  const auto block = std::make_shared<const Block>(8);
  CallContext context = {.failures = &failures,
                         .cancelled = &cancelled,
                         .dropped = &dropped,
                         .memory = block};
  std::vector<std::int64_t> to(2 * indices.size());
  const auto column = [&](std::size_t at) {
    return Column{
        DType::kInt64, {}, reinterpret_cast<std::byte*>(to.data() + at), 8, nullptr};
  };
  const std::vector<Column> columns = {column(0), column(indices.size())};
  Memory memory;
  const auto expect_seen = [&](const RecordingSource& seen,
                               const std::vector<std::int64_t>& samples,
                               const std::vector<std::uint32_t>& of) {
    EXPECT_EQ(seen.samples, samples);
    EXPECT_EQ(seen.epochs, of);
    EXPECT_EQ(seen.seed, (Seed{3, 4}));
    EXPECT_EQ(seen.context.failures, &failures);
    EXPECT_EQ(seen.context.cancelled, &cancelled);
    EXPECT_EQ(seen.context.dropped, &dropped);
    EXPECT_EQ(seen.context.memory, block);
  };
  const Request request = {indices, epochs, {3, 4}, 100, context};
  Rows rows{std::span(columns).first(1), memory};
  source.read(request, rows);
  expect_seen(*first, {7, 0}, {6, 8});
  expect_seen(*second, {9, 0}, {5, 7});
  EXPECT_EQ(std::vector(to.begin(), to.begin() + 4),
            (std::vector<std::int64_t>{9, 7, 0, 0}));
  const Request few = {
      std::span(indices).first(1), std::span(epochs).first(1), {3, 4}, 100, context};
  Rows both{columns, memory};
  Zipped({first, other}).read(few, both);
  expect_seen(*first, {0}, {5});
  expect_seen(*other, {0}, {5});
  EXPECT_EQ(to[4], 0);
  Recast(other, {{{"z", DType::kInt64, {}}}}).read(few, rows);
  expect_seen(*other, {0}, {5});
}

/// Rows of one megabyte that hold their own index. Records the largest request.
class LargeRows final : public Source {
 public:
  static constexpr std::int64_t kRow = std::int64_t{1} << 20;

  std::int64_t size() const noexcept override { return 10; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override { return {.waits = true, .may_fail = true}; }
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto& [columns, memory] = rows;
    most = std::max(most, indices.size());
    for (std::size_t k = 0; k < indices.size(); ++k) {
      columns[0].rows[k] = memory.allocate(kRow);
      std::memset(columns[0].rows[k], static_cast<int>(indices[k]), kRow);
    }
  }

  mutable std::size_t most = 0;

 private:
  Schema schema_{{"x", DType::kUint8, Shape{kRow}}};
};

TEST(Concatenated, LimitsTheBytesPerRead) {
  const auto first = std::make_shared<LargeRows>();
  const auto second = std::make_shared<LargeRows>();
  const Concatenated all({first, second});
  const std::vector<std::int64_t> indices = {19, 0, 1, 12, 3, 4, 11, 6, 7, 8, 9};
  const auto count = static_cast<std::int64_t>(indices.size());
  Memory memory;
  std::vector<Column> columns = {{DType::kUint8, Shape{LargeRows::kRow},
                                  memory.allocate(count * LargeRows::kRow),
                                  LargeRows::kRow, nullptr}};
  read_samples(all, indices, columns, memory);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t value = indices[static_cast<std::size_t>(k)] % 10;
    EXPECT_EQ(columns[0].row(k)[0], static_cast<std::byte>(value)) << k;
    EXPECT_EQ(columns[0].row(k)[LargeRows::kRow - 1], static_cast<std::byte>(value));
  }
  EXPECT_LE(first->most, 4u);
}

}  // namespace
}  // namespace millstream
