#include "millstream/workers/thread_worker_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

using std::chrono::milliseconds;
using Row = std::function<void(const WorkRequest& chunk, std::int64_t row)>;

/// Makes a row: ten times the sample, plus its seed and input if there are any.
void make_row(const WorkRequest& chunk, std::int64_t row) {
  const auto k = static_cast<std::size_t>(row);
  std::int64_t value = chunk.indices[k] * 10;
  if (!chunk.seeds.empty()) value += static_cast<std::int64_t>(chunk.seeds[k]);
  if (!chunk.input.empty()) value += std::to_integer<int>(*chunk.input[0].row(row));
  std::memcpy(chunk.output[0].row(row), &value, sizeof(value));
}

std::unique_ptr<ThreadWorkerPool> pool_of(Row each, int workers,
                                          milliseconds timeout = milliseconds(0)) {
  ThreadWorkerPool::Function function;
  function.make = [each = std::move(each)](const WorkRequest& chunk,
                                           std::atomic<std::int64_t>& row,
                                           const std::shared_ptr<const void>&) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      row.store(k);
      each(chunk, k);
    }
  };
  function.stack_of = [](std::uint64_t) { return std::string("in a function"); };
  return std::make_unique<ThreadWorkerPool>(std::move(function), workers, timeout);
}

/// Output rows with one int64 each.
struct Rows {
  explicit Rows(std::int64_t count, std::int64_t first = 0, std::int64_t gap = 0)
      : indices(static_cast<std::size_t>(count)),
        bytes(static_cast<std::size_t>(count * (8 + gap))),
        column{DType::kInt64, Shape(), bytes.data(), 8 + gap, nullptr} {
    std::iota(indices.begin(), indices.end(), first);
  }
  WorkRequest request(CallContext context = {}) const {
    return {indices, seeds, input, {&column, 1}, context, 0};
  }
  std::int64_t at(std::size_t k) const {
    std::int64_t value;
    std::memcpy(&value, column.row(static_cast<std::int64_t>(k)), sizeof(value));
    return value;
  }
  bool right() const {
    for (std::size_t k = 0; k < indices.size(); ++k) {
      if (at(k) != indices[k] * 10) return false;
    }
    return true;
  }

  std::vector<std::int64_t> indices;
  std::vector<std::uint64_t> seeds;
  std::vector<Column> input;
  std::vector<std::byte> bytes;
  Column column;
};

template <typename E>
std::string failing(ThreadWorkerPool& pool, const Rows& rows,
                    CallContext context = {}) {
  try {
    pool.make(rows.request(context));
  } catch (const E& error) {
    return error.what();
  }
  return "made";
}

TEST(ThreadWorkerPool, MakesTheSameRowsWithAnyNumberOfThreadsAndAnyTimeout) {
  for (const int workers : {1, 2, 5}) {
    for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
      const auto pool = pool_of(make_row, workers, timeout);
      EXPECT_EQ(pool->workers(), workers);
      for (const std::int64_t count : {0, 1, 7, 100}) {
        for (const std::int64_t gap : {0, 5}) {
          const Rows rows(count, 30, gap);
          pool->make(rows.request());
          EXPECT_TRUE(rows.right()) << workers << " workers, " << count << " rows";
        }
      }
    }
  }
}

TEST(ThreadWorkerPool, PassesSeedsAndInputToTheFunction) {
  std::vector<std::byte> values(20);
  std::vector<std::byte*> scattered;
  for (std::size_t k = 0; k < 20; ++k) {
    values[k] = static_cast<std::byte>(k + 1);
    scattered.push_back(&values[19 - k]);
  }
  for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
    const auto pool = pool_of(make_row, 3, timeout);
    Rows rows(20);
    rows.input = {{DType::kUint8, Shape(), nullptr, 0, scattered.data()}};
    for (std::uint64_t k = 0; k < 20; ++k) rows.seeds.push_back(k * 1000);
    pool->make(rows.request());
    for (std::size_t k = 0; k < 20; ++k) {
      EXPECT_EQ(rows.at(k), static_cast<std::int64_t>(k * 10 + k * 1000 + 20 - k));
    }
  }
}

TEST(ThreadWorkerPool, ServesManyThreadsAtOnce) {
  const auto pool = pool_of(make_row, 3);
  std::vector<std::jthread> threads;
  for (int id = 0; id < 6; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 100; ++i) {
        const Rows rows(1 + (id * 7 + i) % 40, id * 100);
        pool->make(rows.request());
        EXPECT_TRUE(rows.right());
      }
    });
  }
}

TEST(ThreadWorkerPool, ReportsTheErrorOfTheLowestRow) {
  const auto failing_row = [](const WorkRequest& chunk, std::int64_t row) {
    const std::int64_t sample = chunk.indices[static_cast<std::size_t>(row)];
    if (sample >= 11) {
      throw FunctionError(text("sample ", sample, " is bad"), sample, "", nullptr);
    }
    make_row(chunk, row);
  };
  for (const int workers : {1, 2, 5}) {
    const auto pool = pool_of(failing_row, workers);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(failing<FunctionError>(*pool, Rows(40)), "sample 11 is bad");
    }
    const Rows good(11);
    pool->make(good.request());
    EXPECT_TRUE(good.right());
  }
}

TEST(ThreadWorkerPool, ReturnsHostValuesByRow) {
  for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
    ThreadWorkerPool::Function function;
    function.make = [](const WorkRequest& chunk, std::atomic<std::int64_t>&,
                       const std::shared_ptr<const void>&) {
      for (std::int64_t k = 0; k < chunk.rows(); ++k) {
        const std::int64_t sample = chunk.indices[static_cast<std::size_t>(k)];
        chunk.context.host_values->add(
            {{chunk.first + k, nullptr, std::to_string(sample)}});
      }
    };
    ThreadWorkerPool pool(function, 4, timeout);
    HostValues host_values;
    WorkRequest request = Rows(0).request();
    const Rows rows(40);
    request = rows.request({&host_values, nullptr, nullptr});
    request.first = 500;
    pool.make(request);
    const auto values = host_values.take();
    for (const HostValue& value : values) {
      EXPECT_EQ(value.bytes, std::to_string(value.row - 500));
    }
    EXPECT_EQ(values.size(), 40u);
  }
}

TEST(ThreadWorkerPool, PassesEachHostValueToItsRow) {
  ThreadWorkerPool::Function function;
  function.make = [](const WorkRequest& chunk, std::atomic<std::int64_t>&,
                     const std::shared_ptr<const void>&) {
    for (const HostValue& value : chunk.host_values) {
      const std::int64_t row = value.row - chunk.first;
      ASSERT_LT(row, chunk.rows());
      const std::int64_t sample = chunk.indices[static_cast<std::size_t>(row)];
      const auto number = std::static_pointer_cast<const std::int64_t>(value.object);
      const std::string bytes = number ? std::to_string(*number) : value.bytes;
      chunk.context.host_values->add(
          {{value.row, nullptr, std::to_string(sample) + " " + bytes}});
    }
  };
  ThreadWorkerPool pool(function, 4, milliseconds(0));
  const Rows rows(40);
  HostValues host_values;
  std::vector<HostValue> given;
  for (std::int64_t k = 39; k >= 0; --k) {  // in any order
    if (k % 5 == 2) continue;               // a row without a value
    given.push_back({500 + k, nullptr, std::to_string(k)});
    if (k % 2 == 0)
      given.back() = {500 + k, std::make_shared<const std::int64_t>(k), ""};
  }
  WorkRequest request = rows.request({&host_values, nullptr, nullptr});
  request.first = 500;
  request.host_values = given;
  pool.make(request);
  const auto values = host_values.take();
  EXPECT_EQ(values.size(), 32u);
  for (const HostValue& value : values) {
    const std::string k = std::to_string(value.row - 500);
    EXPECT_EQ(value.bytes, k + " " + k);
  }
}

TEST(ThreadWorkerPool, AStallNamesTheSampleAndClosesThePool) {
  struct Stall {
    std::latch release{1};
    std::latch over{1};
  };
  // Shared, because the stalled thread may return after the test has ended.
  const auto stall = std::make_shared<Stall>();
  auto pool = pool_of(
      [stall](const WorkRequest& chunk, std::int64_t row) {
        const bool stuck = chunk.indices[static_cast<std::size_t>(row)] == 3;
        if (stuck) stall->release.wait();
        make_row(chunk, row);
        if (stuck) stall->over.count_down();
      },
      1, milliseconds(400));
  auto rows = std::make_unique<Rows>(5);
  auto stuck = std::async(std::launch::async,
                          [&] { return failing<WorkerStalled>(*pool, *rows); });
  std::this_thread::sleep_for(milliseconds(100));
  // Queued: the only thread is stuck.
  const Rows behind(5, 10);
  auto others = std::async(std::launch::async,
                           [&] { return failing<WorkerStalled>(*pool, behind); });
  const std::string words = stuck.get();
  EXPECT_TRUE(words.starts_with("sample 3 has taken more than 400 ms in thread "))
      << words;
  EXPECT_TRUE(words.ends_with("\nin a function")) << words;
  const std::string why =
      "the worker pool was closed, because sample 3 has taken more ";
  EXPECT_TRUE(others.get().starts_with(why));
  EXPECT_TRUE(failing<WorkerStalled>(*pool, behind).starts_with(why));
  rows.reset();  // the stuck thread writes to a copy
  pool.reset();
  stall->release.count_down();
  stall->over.wait();
}

TEST(ThreadWorkerPool, WritesToTheBatchAndKeepsItAlive) {
  std::latch release(1);
  std::latch over(1);
  std::byte* written = nullptr;
  const auto pool = pool_of(
      [&](const WorkRequest& chunk, std::int64_t row) {
        release.wait();
        written = chunk.output[0].row(row);
        make_row(chunk, row);
        over.count_down();
      },
      1);
  auto block = std::make_shared<const Block>(64);
  const std::weak_ptr<const Block> watched = block;
  std::byte* const data = block->data();
  std::atomic<bool> cancelled{false};
  Rows rows(1);
  rows.column.data = data;
  auto given_up = std::async(std::launch::async, [&, block] {
    return failing<Cancelled>(*pool, rows,
                              {nullptr, nullptr, &cancelled, nullptr, nullptr, block});
  });
  block.reset();
  std::this_thread::sleep_for(milliseconds(20));
  cancelled = true;
  EXPECT_EQ(given_up.get(), "the request was cancelled");
  given_up = {};
  EXPECT_FALSE(watched.expired());
  release.count_down();
  over.wait();
  EXPECT_EQ(written, data);
  pool->close();
  EXPECT_TRUE(watched.expired());
}

TEST(ThreadWorkerPool, ColumnsThatAFunctionKeepsStayUnchanged) {
  std::mutex mutex;
  std::vector<WorkRequest> kept;
  std::vector<std::shared_ptr<const void>> owners;
  ThreadWorkerPool::Function function;
  function.make = [&](const WorkRequest& chunk, std::atomic<std::int64_t>&,
                      const std::shared_ptr<const void>& owner) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) make_row(chunk, k);
    const std::lock_guard lock(mutex);
    kept.push_back(chunk);
    owners.push_back(owner);
  };
  {
    ThreadWorkerPool pool(function, 2, milliseconds(0));
    for (std::int64_t batch = 0; batch < 20; ++batch) {
      std::byte value{7};
      Rows rows(10, 10 * batch);
      rows.input = {{DType::kUint8, Shape(), &value, 0, nullptr}};
      pool.make(rows.request());
    }
  }
  for (const WorkRequest& chunk : kept) {
    for (std::int64_t k = 0; k < chunk.rows(); ++k) {
      std::int64_t value;
      std::memcpy(&value, chunk.output[0].row(k), sizeof(value));
      EXPECT_EQ(value, chunk.indices[static_cast<std::size_t>(k)] * 10 + 7);
      EXPECT_EQ(*chunk.input[0].row(k), std::byte{7});
    }
  }
}

TEST(ThreadWorkerPool, RowsMadeTogetherShareTheSumOfTheirTimeouts) {
  ThreadWorkerPool::Function function;
  function.make = [](const WorkRequest& chunk, std::atomic<std::int64_t>& row,
                     const std::shared_ptr<const void>&) {
    row = -chunk.rows();
    std::this_thread::sleep_for(milliseconds(1000));
    for (std::int64_t k = 0; k < chunk.rows(); ++k) make_row(chunk, k);
  };
  function.stack_of = [](std::uint64_t) { return std::string("in a function"); };
  ThreadWorkerPool patient(function, 1, milliseconds(400));
  const Rows rows(10);
  patient.make(rows.request());
  EXPECT_TRUE(rows.right());
  ThreadWorkerPool hasty(function, 1, milliseconds(20));
  const std::string words = failing<WorkerStalled>(hasty, rows);
  EXPECT_TRUE(
      words.starts_with("one of samples [0, 1, 2, 3, 4, 5, 6, 7, ...] has "
                        "taken more than 200 ms in thread "))
      << words;
}

TEST(ThreadWorkerPool, ClosingFailsQueuedRequests) {
  std::latch begun(1);
  std::latch release(1);
  const auto pool = pool_of(
      [&](const WorkRequest& chunk, std::int64_t row) {
        if (chunk.indices[static_cast<std::size_t>(row)] == 0) {
          begun.count_down();
          release.wait();
        }
        make_row(chunk, row);
      },
      1);
  const Rows first(1);
  auto running = std::async(std::launch::async, [&] { pool->make(first.request()); });
  begun.wait();
  const Rows second(5, 10);
  auto queued =
      std::async(std::launch::async, [&] { return failing<Cancelled>(*pool, second); });
  std::this_thread::sleep_for(milliseconds(20));
  std::jthread closing([&] { pool->close(); });
  EXPECT_EQ(queued.get(), "the worker pool was closed");
  release.count_down();
  running.get();
  EXPECT_TRUE(first.right());
  closing.join();
  EXPECT_EQ(failing<Cancelled>(*pool, second), "the worker pool was closed");
}

TEST(ThreadWorkerPool, ACancelledRequestInTheQueueDoesNotStart) {
  std::atomic<bool> cancelled{false};
  std::atomic<int> made{0};
  std::latch begun(1);
  std::latch release(1);
  const auto pool = pool_of(
      [&](const WorkRequest& chunk, std::int64_t row) {
        if (chunk.indices[static_cast<std::size_t>(row)] == 0) {
          begun.count_down();
          release.wait();
        }
        ++made;
      },
      1);
  const Rows first(1);
  auto running = std::async(std::launch::async, [&] { pool->make(first.request()); });
  begun.wait();
  const Rows second(5, 10);
  auto queued = std::async(std::launch::async, [&] {
    return failing<Cancelled>(*pool, second, {nullptr, nullptr, &cancelled});
  });
  std::this_thread::sleep_for(milliseconds(20));
  cancelled = true;
  EXPECT_EQ(queued.get(), "the request was cancelled");
  release.count_down();
  running.get();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(failing<Cancelled>(*pool, second, {nullptr, nullptr, &cancelled}),
            "the request was cancelled");
}

TEST(ThreadWorkerPool, OneWorkerLendsItsFunctionToTheCaller) {
  std::mutex mutex;
  std::vector<std::thread::id> threads;
  const auto pool_with = [&](int workers, milliseconds timeout) {
    return pool_of(
        [&](const WorkRequest& chunk, std::int64_t row) {
          make_row(chunk, row);
          const std::lock_guard lock(mutex);
          threads.push_back(std::this_thread::get_id());
        },
        workers, timeout);
  };
  for (const int workers : {1, 2}) {
    for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
      const auto pool = pool_with(workers, timeout);
      const bool lends = workers == 1 && timeout.count() == 0;
      EXPECT_EQ(pool->lends_function(), lends);
      for (const bool may_call : {false, true}) {
        threads.clear();
        const Rows rows(5);
        pool->make(rows.request({.may_call = may_call}));
        EXPECT_TRUE(rows.right());
        EXPECT_EQ(std::ranges::count(threads, std::this_thread::get_id()),
                  lends && may_call ? 5 : 0);
      }
    }
  }
}

TEST(ThreadWorkerPool, TheCallerAndTheWorkerNeverCallAtTheSameTime) {
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  const auto pool = pool_of(
      [&](const WorkRequest& chunk, std::int64_t row) {
        most = std::max(most.load(), ++running);
        std::this_thread::sleep_for(milliseconds(10));
        make_row(chunk, row);
        --running;
      },
      1);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      for (int turn = 0; turn < 4; ++turn) {
        const Rows rows(5, i);  // two chunks
        pool->make(rows.request({.may_call = (i + turn) % 2 == 0}));
        EXPECT_TRUE(rows.right());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(most, 1);
}

TEST(ThreadWorkerPool, TheCallerGetsTheErrorOfItsOwnCall) {
  const auto pool = pool_of(
      [&](const WorkRequest& chunk, std::int64_t row) {
        if (chunk.indices[static_cast<std::size_t>(row)] == 2) {
          throw DataError("bad sample");
        }
        make_row(chunk, row);
      },
      1);
  EXPECT_EQ(failing<DataError>(*pool, Rows(5), {.may_call = true}), "bad sample");
  const Rows rows(5, 10);
  pool->make(rows.request({.may_call = true}));
  EXPECT_TRUE(rows.right());
}

TEST(ThreadWorkerPool, RejectsZeroWorkers) {
  EXPECT_THROW(pool_of(make_row, 0), ArgumentError);
}

#if !defined(__SANITIZE_THREAD__)
TEST(ThreadWorkerPool, AForkedProcessCanOnlyDestroyThePool) {
  auto pool = pool_of(make_row, 2);
  const Rows rows(5);
  pool->make(rows.request());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        failing<ArgumentError>(*pool, rows).find("parent") != std::string::npos;
    pool.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace millstream
