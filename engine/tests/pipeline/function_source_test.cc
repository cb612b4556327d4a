#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/core/random.h"
#include "millstream/source/combine.h"
#include "millstream/source/function.h"
#include "millstream/workers/thread_worker_pool.h"
#include "source/source_conformance.h"
#include "workers/pool_rows.h"

namespace millstream {
namespace {

/// A pool of threads that copy samples from `truth`.
std::shared_ptr<WorkerPool> copying(std::vector<TrueField> truth, int workers,
                                    int timeout) {
  ThreadWorkerPool::Function function;
  function.make = [truth = std::move(truth)](const WorkRequest& chunk,
                                             std::atomic<std::int64_t>& row,
                                             const std::shared_ptr<const void>&) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      row.store(k);
      const std::int64_t index = chunk.indices[static_cast<std::size_t>(k)];
      for (std::size_t f = 0; f < truth.size(); ++f) {
        const std::int64_t bytes = byte_size(truth[f].field);
        std::memcpy(chunk.output[f].row(k), truth[f].bytes.data() + index * bytes,
                    static_cast<std::size_t>(bytes));
      }
    }
  };
  function.stack_of = [](std::uint64_t) { return std::string(); };
  return std::make_shared<ThreadWorkerPool>(std::move(function), workers,
                                            std::chrono::milliseconds(timeout));
}

SourceCase made_case(const std::string& name, const Schema& schema, std::int64_t size,
                     int workers, int timeout = 0) {
  std::vector<TrueField> truth;
  for (const Field& field : schema) truth.push_back(counted(field, size));
  return {name, truth, [=](const TemporaryFolder&) {
            return std::make_shared<FunctionSource>(size, schema,
                                                    copying(truth, workers, timeout));
          }};
}

const Schema kMixed = {{"image", DType::kUint8, {5, 3}},
                       {"label", DType::kInt64, {}},
                       {"nothing", DType::kFloat32, {2, 0}},
                       {"half", DType::kFloat16, {7}}};

INSTANTIATE_TEST_SUITE_P(Made, SourceConformance,
                         testing::Values(made_case("OneThread", kMixed, 23, 1),
                                         made_case("ThreeThreads", kMixed, 57, 3),
                                         made_case("Watched", kMixed, 19, 2, 600'000),
                                         made_case("OneSample",
                                                   {{"x", DType::kInt32, {4}}}, 1, 2)),
                         case_name);

TEST(FunctionSource, ReportsTheSampleThatCannotBeConverted) {
  const Schema schema = {{"x", DType::kInt64, {}}};
  std::vector<TrueField> truth = {{schema[0], std::string(3 * 8, '\0')}};
  truth[0].bytes[2 * 8 + 7] = 1;  // sample 2 is beyond 32 bits
  const FunctionSource source(3, schema, copying(truth, 1, 0));
  std::int32_t narrow[2];
  Column column{DType::kInt32, Shape(), reinterpret_cast<std::byte*>(narrow), 4,
                nullptr};
  Memory memory;
  read_samples(source, std::vector<std::int64_t>{0, 1}, {&column, 1}, memory);
  try {
    read_samples(source, std::vector<std::int64_t>{0, 2}, {&column, 1}, memory);
    FAIL() << "the sample was converted";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(),
                 "x: sample 2 holds a value of dtype int64 that int32 cannot hold, "
                 "72057594037927936"
                 "; set jax_enable_x64 for 64-bit values, or store values that int32 "
                 "can hold");
  }
}

TEST(FunctionSource, RejectsASizeOfZero) {
  EXPECT_THROW(FunctionSource(0, kMixed, copying({}, 1, 0)), ArgumentError);
}

/// A pool of threads that write the seed of each sample, or 1 without seeds.
std::shared_ptr<WorkerPool> drawing() {
  ThreadWorkerPool::Function function;
  function.make = [](const WorkRequest& chunk, std::atomic<std::int64_t>&,
                     const std::shared_ptr<const void>&) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      const std::uint64_t value =
          chunk.seeds.empty() ? 1 : chunk.seeds[static_cast<std::size_t>(k)];
      std::memcpy(chunk.output[0].row(k), &value, sizeof(value));
    }
  };
  function.stack_of = [](std::uint64_t) { return std::string(); };
  return std::make_shared<ThreadWorkerPool>(std::move(function), 2,
                                            std::chrono::milliseconds(0));
}

std::vector<std::uint64_t> values(const Source& source, const Request& request) {
  std::vector<std::uint64_t> result(static_cast<std::size_t>(request.rows()));
  const Column column{DType::kUint64, Shape(),
                      reinterpret_cast<std::byte*>(result.data()), 8, nullptr};
  Memory memory;
  Rows rows{{&column, 1}, memory};
  source.read(request, rows);
  return result;
}

TEST(FunctionSource, SeedsDependOnTheSeedTheEpochAndItsOwnIndex) {
  constexpr std::uint32_t kStage = 77;
  const Schema schema = {{"x", DType::kUint64, {}}};
  const auto first = std::make_shared<FunctionSource>(5, schema, drawing(), kStage, 1);
  const auto second = std::make_shared<FunctionSource>(9, schema, drawing(), kStage);
  const auto plain = std::make_shared<FunctionSource>(3, schema, drawing());
  const auto all =
      std::make_shared<Concatenated>(std::vector<SharedSource>{first, second, plain});
  const Subset source(all, 16, 17, -1);  // in reverse
  const std::vector<std::int64_t> indices = {16, 11, 0, 3};
  const std::vector<std::uint32_t> epochs = {5, 6, 7, 8};
  const Seed seed{12, 34};
  EXPECT_EQ(values(source, {indices, epochs, seed}),
            (std::vector<std::uint64_t>{Random(seed, 5, 0, kStage).bits64(),
                                        Random(seed, 6, 0, kStage).bits64(), 1,
                                        Random(seed, 8, 8, kStage).bits64()}));
  EXPECT_EQ(values(source, {indices}),
            (std::vector<std::uint64_t>{Random({}, 0, 0, kStage).bits64(),
                                        Random({}, 0, 0, kStage).bits64(), 1,
                                        Random({}, 0, 8, kStage).bits64()}));
  EXPECT_TRUE(source.traits().draws);
  EXPECT_EQ(source.traits().function_numbers, 1u);
  EXPECT_EQ(second->traits().function_numbers, 0u);
  EXPECT_FALSE(plain->traits().draws);
}

TEST(FunctionSource, ReadsSamplesFromWorkerProcesses) {
  const FunctionSource source(100, {{"x", DType::kUint8, {24}}},
                              pool_of({}, {.workers = 2}));
  EXPECT_NE(source.worker_pool(), nullptr);
  const auto indices = samples(40, 9);
  Block block(9 * 24);
  std::vector<float> floats(9 * 24);
  std::vector<std::byte*> rows(9);
  Memory memory;
  Column dense{DType::kUint8, Shape({24}), block.data(), 24, nullptr};
  Column converted{DType::kFloat32, Shape({24}),
                   reinterpret_cast<std::byte*>(floats.data()), 96, nullptr};
  Column lent{DType::kUint8, Shape({24}), nullptr, 0, rows.data()};
  for (Column* column : {&dense, &converted, &lent}) {
    read_samples(source, indices, {column, 1}, memory);
  }
  for (std::int64_t k = 0; k < 9; ++k) {
    for (std::int64_t at = 0; at < 24; ++at) {
      const std::byte expected = expected_byte(40 + k, 0, 0, at);
      ASSERT_EQ(dense.row(k)[at], expected);
      ASSERT_EQ(lent.row(k)[at], expected);
      ASSERT_EQ(floats[static_cast<std::size_t>(k * 24 + at)],
                static_cast<float>(expected));
    }
  }
}

}  // namespace
}  // namespace millstream
