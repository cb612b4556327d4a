#include "millstream/workers/process_worker_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"
#include "workers/pool_rows.h"

namespace millstream {
namespace {

const std::vector<std::int64_t> kColumns = {24, 1, 0, 784};

TEST(ProcessWorkerPool, MakesTheSameBytesWithAnyNumberOfWorkers) {
  for (const int workers : {1, 2, 5}) {
    const auto pool = pool_of({.bytes = kColumns}, {.workers = workers});
    EXPECT_EQ(pool->workers(), workers);
    EXPECT_TRUE(pool->pids().empty());  // the first request starts them
    for (const std::int64_t rows : {1, 7, 64, 33}) {
      for (const bool shared : {true, false}) {
        PoolRows made(*pool, samples(rows * 10, rows), kColumns, shared);
        pool->make(made.request());
        EXPECT_TRUE(made.right()) << workers << " workers, " << rows << " rows";
      }
    }
    EXPECT_EQ(pool->pids().size(), static_cast<std::size_t>(workers));
  }
}

TEST(ProcessWorkerPool, WritesRowsAndLeavesTheGapsBetweenThem) {
  const auto pool = pool_of({.bytes = kColumns}, {.workers = 2});
  for (const bool shared : {true, false}) {
    for (const std::int64_t gap : {1, 40}) {
      PoolRows made(*pool, samples(3, 19), kColumns, shared, gap);
      pool->make(made.request());
      EXPECT_TRUE(made.right());
    }
  }
}

TEST(ProcessWorkerPool, GivesEachRowItsSeed) {
  const auto pool = pool_of({}, {.workers = 2});
  PoolRows made(*pool, samples(0, 21), {24}, true);
  for (std::uint64_t k = 0; k < 21; ++k) made.seeds.push_back(k * k << 40);
  pool->make(made.request());
  EXPECT_TRUE(made.right());
}

TEST(ProcessWorkerPool, ReadsInputInsideAndOutsideSharedMemory) {
  constexpr std::int64_t kRows = 13;
  const auto pool = pool_of({.mode = "echo"}, {.workers = 2});
  Block shared = pool->block(kRows * 24);
  Block elsewhere(kRows * 24);
  std::vector<std::byte*> rows;
  for (std::int64_t at = 0; at < kRows * 24; ++at) {
    shared.data()[at] = elsewhere.data()[at] = static_cast<std::byte>(at * 7);
  }
  for (std::int64_t k = 0; k < kRows; ++k) {
    rows.push_back(elsewhere.data() + (kRows - 1 - k) * 24);
  }
  const Shape shape({24});
  const Column inputs[] = {{DType::kUint8, shape, shared.data(), 24, nullptr},
                           {DType::kUint8, shape, elsewhere.data(), 24, nullptr},
                           {DType::kUint8, shape, nullptr, 0, rows.data()},
                           {DType::kUint8, shape, shared.data(), 0, nullptr}};
  for (const Column& input : inputs) {
    PoolRows made(*pool, samples(0, kRows), {24}, true);
    made.input = {input};
    pool->make(made.request());
    for (std::int64_t k = 0; k < kRows; ++k) {
      for (std::int64_t at = 0; at < 24; ++at) {
        ASSERT_EQ(made.columns()[0].row(k)[at], input.row(k)[at] ^ std::byte{0xFF});
      }
    }
  }
}

TEST(ProcessWorkerPool, ARequestWithoutRowsReturnsAtOnce) {
  const auto pool = pool_of({}, {.workers = 2});
  PoolRows made(*pool, {}, {24}, false);
  pool->make(made.request());
  EXPECT_TRUE(made.right());
}

TEST(ProcessWorkerPool, ServesManyThreadsAtOnce) {
  const auto pool = pool_of({.bytes = kColumns}, {.workers = 2});
  std::vector<std::jthread> threads;
  for (int id = 0; id < 6; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 15; ++i) {
        PoolRows made(*pool, samples(id * 1000, 1 + (id * 7 + i) % 30), kColumns,
                      (id + i) % 2 == 0);
        pool->make(made.request());
        EXPECT_TRUE(made.right());
      }
    });
  }
}

TEST(ProcessWorkerPool, ReturnsHostValues) {
  const auto pool = pool_of({.mode = "host_values"}, {.workers = 2});
  PoolRows made(*pool, samples(100, 30), {24}, true);
  HostValues host_values;
  WorkRequest request = made.request({&host_values, nullptr, nullptr});
  request.first = 1000;
  pool->make(request);
  auto values = host_values.take();
  std::ranges::sort(values, {}, &HostValue::row);
  ASSERT_EQ(values.size(), 30u);
  for (std::int64_t k = 0; k < 30; ++k) {
    const HostValue& value = values[static_cast<std::size_t>(k)];
    EXPECT_EQ(value.row, 1000 + k);
    EXPECT_EQ(value.object, nullptr);
    EXPECT_EQ(value.bytes, std::to_string(100 + k));
  }
}

TEST(ProcessWorkerPool, PassesHostValuesToWorkers) {
  const auto pool = pool_of(
      {.mode = "host_values"},
      {.workers = 3, .encode = [](const WorkRequest& request) {
         for (HostValue& value : request.host_values) {
           if (value.object == nullptr) continue;
           value.bytes = *std::static_pointer_cast<const std::string>(value.object);
         }
       }});
  for (const std::int64_t rows : {1, 30}) {
    PoolRows made(*pool, samples(100, rows), {24}, true);
    HostValues host_values;
    std::vector<HostValue> given;
    for (std::int64_t k = rows - 1; k >= 0; --k) {  // in any order
      if (k % 5 == 2) continue;                     // a row without a value
      const std::string word = " of row " + std::to_string(k);
      given.push_back({1000 + k, nullptr, word});
      if (k % 2 == 0) {
        given.back() = {1000 + k, std::make_shared<const std::string>(word), ""};
      }
    }
    WorkRequest request = made.request({&host_values, nullptr, nullptr});
    request.first = 1000;
    request.host_values = given;
    pool->make(request);
    const auto values = host_values.take();
    ASSERT_EQ(values.size(), static_cast<std::size_t>(rows));
    for (const HostValue& value : values) {
      const std::int64_t k = value.row - 1000;
      const std::string word = k % 5 == 2 ? "" : " of row " + std::to_string(k);
      EXPECT_EQ(value.bytes, std::to_string(100 + k) + word);
    }
  }
}

TEST(ProcessWorkerPool, AHostValueThatCannotBeEncodedIsAnError) {
  const auto pool =
      pool_of({.mode = "host_values"}, {.encode = [](const WorkRequest& request) {
                throw FunctionError("no bytes", request.indices[1], "", nullptr);
              }});
  PoolRows made(*pool, samples(100, 3), {24}, true);
  std::vector<HostValue> given = {{1, std::make_shared<const int>(1), ""}};
  WorkRequest request = made.request();
  request.host_values = given;
  try {
    pool->make(request);
    FAIL() << "the value was encoded";
  } catch (const FunctionError& error) {
    EXPECT_EQ(error.sample(), 101);
  }
  EXPECT_TRUE(pool->pids().empty());
}

TEST(ProcessWorkerPool, AWorkerThatSendsTooFewHostValuesIsAnError) {
  const auto pool = pool_of({.mode = "few_host_values"}, {});
  PoolRows made(*pool, samples(100, 3), {24}, true);
  HostValues host_values;
  try {
    pool->make(made.request({&host_values, nullptr, nullptr}));
    FAIL() << "the answer was accepted";
  } catch (const WorkerDied& error) {
    EXPECT_NE(std::string(error.what()).find("1 host values for 3 rows"),
              std::string::npos)
        << error.what();
  }
}

TEST(ProcessWorkerPool, BlocksOutliveThePool) {
  auto pool = pool_of({}, {.workers = 1});
  const PoolRows made(*pool, samples(0, 5), {24}, true);
  pool->make(made.request());
  pool.reset();
  EXPECT_TRUE(made.right());
}

TEST(ProcessWorkerPool, TakesALargeSetup) {
  Instructions instructions;
  instructions.path = std::string(4'000'000, 'p');  // more than a socket holds
  const auto pool = pool_of(instructions, {.workers = 2});
  const PoolRows made(*pool, samples(0, 5), {24}, true);
  pool->make(made.request());
  EXPECT_TRUE(made.right());
}

TEST(ProcessWorkerPool, RejectsBadOptions) {
  const Launch launch{{MILLSTREAM_TEST_WORKER}, {}, ""};
  EXPECT_THROW(ProcessWorkerPool(launch, {.workers = 0}), ArgumentError);
  EXPECT_THROW(ProcessWorkerPool(launch, {.restarts = -1}), ArgumentError);
  EXPECT_THROW(ProcessWorkerPool(launch, {.timeout = std::chrono::milliseconds(-1)}),
               ArgumentError);
  EXPECT_THROW(ProcessWorkerPool({{}, {}, ""}, {}), ArgumentError);
}

#if !defined(__SANITIZE_THREAD__)
TEST(ProcessWorkerPool, AForkedProcessCanOnlyDestroyThePool) {
  auto pool = pool_of({}, {.workers = 2});
  const PoolRows made(*pool, samples(0, 9), {24}, true);
  pool->make(made.request());
  const pid_t child = fork();
  if (child == 0) {
    bool refused = false;
    try {
      pool->make(made.request());
    } catch (const ArgumentError&) {
      refused = true;
    }
    pool->block(10).data()[0] = std::byte{1};
    refused = refused && pool->pids().empty();
    pool.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(made.right());
  pool->make(made.request());
  EXPECT_TRUE(made.right());
}
#endif

}  // namespace
}  // namespace millstream
