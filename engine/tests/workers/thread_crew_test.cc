#include "millstream/workers/thread_crew.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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
using Row = std::function<void(const Work& part, std::int64_t row)>;

/// What most of these functions do: ten times the sample, and its seed.
void make_row(const Work& part, std::int64_t row) {
  const auto k = static_cast<std::size_t>(row);
  std::int64_t value = part.indices[k] * 10;
  if (!part.seeds.empty()) value += static_cast<std::int64_t>(part.seeds[k]);
  if (!part.input.empty()) value += std::to_integer<int>(*part.input[0].row(row));
  std::memcpy(part.output[0].row(row), &value, sizeof(value));
}

std::unique_ptr<ThreadCrew> crew_of(Row each, int workers,
                                    milliseconds timeout = milliseconds(0)) {
  ThreadCrew::Function function;
  function.make = [each = std::move(each)](const Work& part,
                                           std::atomic<std::int64_t>& row,
                                           const std::shared_ptr<const void>&) {
    for (std::int64_t k = 0; k < part.rows(); ++k) {
      row.store(k);
      each(part, k);
    }
  };
  function.whereabouts = [](std::uint64_t) { return std::string("in a function"); };
  return std::make_unique<ThreadCrew>(std::move(function), workers, timeout);
}

/// Rows of an int64 to make.
struct Rows {
  explicit Rows(std::int64_t count, std::int64_t first = 0, std::int64_t gap = 0)
      : indices(static_cast<std::size_t>(count)),
        bytes(static_cast<std::size_t>(count * (8 + gap))),
        column{DType::kInt64, Shape(), bytes.data(), 8 + gap, nullptr} {
    std::iota(indices.begin(), indices.end(), first);
  }
  Work work(Making making = {}) const {
    return {indices, seeds, input, {&column, 1}, making, 0};
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
std::string failing(ThreadCrew& crew, const Rows& rows, Making making = {}) {
  try {
    crew.make(rows.work(making));
  } catch (const E& error) {
    return error.what();
  }
  return "made";
}

TEST(ThreadCrew, MakesTheSameWithAnyNumberOfThreadsWithAndWithoutATimeout) {
  for (const int workers : {1, 2, 5}) {
    for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
      const auto crew = crew_of(make_row, workers, timeout);
      EXPECT_EQ(crew->workers(), workers);
      for (const std::int64_t count : {0, 1, 7, 100}) {
        for (const std::int64_t gap : {0, 5}) {
          const Rows rows(count, 30, gap);
          crew->make(rows.work());
          EXPECT_TRUE(rows.right()) << workers << " workers, " << count << " rows";
        }
      }
    }
  }
}

TEST(ThreadCrew, HandsOverSeedsAndInput) {
  std::vector<std::byte> values(20);
  std::vector<std::byte*> scattered;
  for (std::size_t k = 0; k < 20; ++k) {
    values[k] = static_cast<std::byte>(k + 1);
    scattered.push_back(&values[19 - k]);
  }
  for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
    const auto crew = crew_of(make_row, 3, timeout);
    Rows rows(20);
    rows.input = {{DType::kUint8, Shape(), nullptr, 0, scattered.data()}};
    for (std::uint64_t k = 0; k < 20; ++k) rows.seeds.push_back(k * 1000);
    crew->make(rows.work());
    for (std::size_t k = 0; k < 20; ++k) {
      EXPECT_EQ(rows.at(k), static_cast<std::int64_t>(k * 10 + k * 1000 + 20 - k));
    }
  }
}

TEST(ThreadCrew, ServesManyThreadsAtOnce) {
  const auto crew = crew_of(make_row, 3);
  std::vector<std::jthread> threads;
  for (int id = 0; id < 6; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 100; ++i) {
        const Rows rows(1 + (id * 7 + i) % 40, id * 100);
        crew->make(rows.work());
        EXPECT_TRUE(rows.right());
      }
    });
  }
}

TEST(ThreadCrew, TheFirstRowThatFailedCounts) {
  const auto failing_row = [](const Work& part, std::int64_t row) {
    const std::int64_t sample = part.indices[static_cast<std::size_t>(row)];
    if (sample >= 11) {
      throw FunctionError(text("sample ", sample, " is bad"), sample, "", nullptr);
    }
    make_row(part, row);
  };
  for (const int workers : {1, 2, 5}) {
    const auto crew = crew_of(failing_row, workers);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(failing<FunctionError>(*crew, Rows(40)), "sample 11 is bad");
    }
    const Rows good(11);
    crew->make(good.work());
    EXPECT_TRUE(good.right());
  }
}

TEST(ThreadCrew, BringsWhatTravelsBesideByItsRow) {
  for (const milliseconds timeout : {milliseconds(0), milliseconds(60'000)}) {
    ThreadCrew::Function function;
    function.make = [](const Work& part, std::atomic<std::int64_t>&,
                       const std::shared_ptr<const void>&) {
      part.making.beside->add(
          {part.first, part.rows(), std::to_string(part.indices[0]), nullptr});
    };
    ThreadCrew crew(function, 4, timeout);
    Beside beside;
    Work work = Rows(0).work();
    const Rows rows(40);
    work = rows.work({&beside, nullptr, nullptr});
    work.first = 500;
    crew.make(work);
    std::int64_t total = 0;
    for (const Beside::Part& part : beside.parts()) {
      EXPECT_EQ(part.bytes, std::to_string(part.first - 500));
      total += part.rows;
    }
    EXPECT_EQ(total, 40);
  }
}

TEST(ThreadCrew, AStallNamesTheSampleAndClosesTheCrew) {
  struct Stall {
    std::latch release{1};
    std::latch over{1};
  };
  // Shared: nobody waits for the thread that comes back.
  const auto stall = std::make_shared<Stall>();
  auto crew = crew_of(
      [stall](const Work& part, std::int64_t row) {
        const bool stuck = part.indices[static_cast<std::size_t>(row)] == 3;
        if (stuck) stall->release.wait();
        make_row(part, row);
        if (stuck) stall->over.count_down();
      },
      1, milliseconds(400));
  auto rows = std::make_unique<Rows>(5);
  auto stuck = std::async(std::launch::async,
                          [&] { return failing<WorkerStalled>(*crew, *rows); });
  std::this_thread::sleep_for(milliseconds(100));
  // Queued behind it, with no thread but the one that is stuck.
  const Rows behind(5, 10);
  auto others = std::async(std::launch::async,
                           [&] { return failing<WorkerStalled>(*crew, behind); });
  const std::string words = stuck.get();
  EXPECT_TRUE(words.starts_with("sample 3 has taken more than 400 ms in thread "))
      << words;
  EXPECT_TRUE(words.ends_with("\nin a function")) << words;
  const std::string why = "the workers were closed, because sample 3 has taken more ";
  EXPECT_TRUE(others.get().starts_with(why));
  EXPECT_TRUE(failing<WorkerStalled>(*crew, behind).starts_with(why));
  rows.reset();  // the thread that comes back writes elsewhere
  crew.reset();
  stall->release.count_down();
  stall->over.wait();
}

TEST(ThreadCrew, WritesIntoTheBatchAndKeepsIt) {
  std::latch release(1);
  std::latch over(1);
  std::byte* written = nullptr;
  const auto crew = crew_of(
      [&](const Work& part, std::int64_t row) {
        release.wait();
        written = part.output[0].row(row);
        make_row(part, row);
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
    return failing<Cancelled>(*crew, rows,
                              {nullptr, nullptr, &cancelled, nullptr, nullptr, block});
  });
  block.reset();
  std::this_thread::sleep_for(milliseconds(20));
  cancelled = true;
  EXPECT_EQ(given_up.get(), "nobody wants these rows");
  given_up = {};
  EXPECT_FALSE(watched.expired());
  release.count_down();
  over.wait();
  EXPECT_EQ(written, data);
  crew->close();
  EXPECT_TRUE(watched.expired());
}

TEST(ThreadCrew, WhatAFunctionKeepsStaysAsItWas) {
  std::mutex mutex;
  std::vector<Work> kept;
  std::vector<std::shared_ptr<const void>> owners;
  ThreadCrew::Function function;
  function.make = [&](const Work& part, std::atomic<std::int64_t>&,
                      const std::shared_ptr<const void>& owner) {
    for (std::int64_t k = 0; k < part.rows(); ++k) make_row(part, k);
    const std::lock_guard lock(mutex);
    kept.push_back(part);
    owners.push_back(owner);
  };
  {
    ThreadCrew crew(function, 2, milliseconds(0));
    for (std::int64_t batch = 0; batch < 20; ++batch) {
      std::byte value{7};
      Rows rows(10, 10 * batch);
      rows.input = {{DType::kUint8, Shape(), &value, 0, nullptr}};
      crew.make(rows.work());
    }
  }
  for (const Work& part : kept) {
    for (std::int64_t k = 0; k < part.rows(); ++k) {
      std::int64_t value;
      std::memcpy(&value, part.output[0].row(k), sizeof(value));
      EXPECT_EQ(value, part.indices[static_cast<std::size_t>(k)] * 10 + 7);
      EXPECT_EQ(*part.input[0].row(k), std::byte{7});
    }
  }
}

TEST(ThreadCrew, RowsMadeAtOnceHaveTheTimeOfAllOfThem) {
  ThreadCrew::Function function;
  function.make = [](const Work& part, std::atomic<std::int64_t>& row,
                     const std::shared_ptr<const void>&) {
    row = -part.rows();
    std::this_thread::sleep_for(milliseconds(1000));
    for (std::int64_t k = 0; k < part.rows(); ++k) make_row(part, k);
  };
  function.whereabouts = [](std::uint64_t) { return std::string("in a function"); };
  ThreadCrew patient(function, 1, milliseconds(400));
  const Rows rows(10);
  patient.make(rows.work());
  EXPECT_TRUE(rows.right());
  ThreadCrew hasty(function, 1, milliseconds(20));
  const std::string words = failing<WorkerStalled>(hasty, rows);
  EXPECT_TRUE(
      words.starts_with("one of samples [0, 1, 2, 3, 4, 5, 6, 7, ...] has "
                        "taken more than 200 ms in thread "))
      << words;
}

TEST(ThreadCrew, ClosingTellsThoseWhoWaitInLine) {
  std::latch begun(1);
  std::latch release(1);
  const auto crew = crew_of(
      [&](const Work& part, std::int64_t row) {
        if (part.indices[static_cast<std::size_t>(row)] == 0) {
          begun.count_down();
          release.wait();
        }
        make_row(part, row);
      },
      1);
  const Rows first(1);
  auto running = std::async(std::launch::async, [&] { crew->make(first.work()); });
  begun.wait();
  const Rows second(5, 10);
  auto queued =
      std::async(std::launch::async, [&] { return failing<Cancelled>(*crew, second); });
  std::this_thread::sleep_for(milliseconds(20));
  std::jthread closing([&] { crew->close(); });
  EXPECT_EQ(queued.get(), "the workers were closed");
  release.count_down();
  running.get();
  EXPECT_TRUE(first.right());
  closing.join();
  EXPECT_EQ(failing<Cancelled>(*crew, second), "the workers were closed");
}

TEST(ThreadCrew, WhatIsCancelledAndHasNotBegunNeverDoes) {
  std::atomic<bool> cancelled{false};
  std::atomic<int> made{0};
  std::latch begun(1);
  std::latch release(1);
  const auto crew = crew_of(
      [&](const Work& part, std::int64_t row) {
        if (part.indices[static_cast<std::size_t>(row)] == 0) {
          begun.count_down();
          release.wait();
        }
        ++made;
      },
      1);
  const Rows first(1);
  auto running = std::async(std::launch::async, [&] { crew->make(first.work()); });
  begun.wait();
  const Rows second(5, 10);
  auto queued = std::async(std::launch::async, [&] {
    return failing<Cancelled>(*crew, second, {nullptr, nullptr, &cancelled});
  });
  std::this_thread::sleep_for(milliseconds(20));
  cancelled = true;
  EXPECT_EQ(queued.get(), "nobody wants these rows");
  release.count_down();
  running.get();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(failing<Cancelled>(*crew, second, {nullptr, nullptr, &cancelled}),
            "nobody wants these rows");
}

TEST(ThreadCrew, RefusesNoWorkers) {
  EXPECT_THROW(crew_of(make_row, 0), ArgumentError);
}

#if !defined(__SANITIZE_THREAD__)
TEST(ThreadCrew, AForkedProcessIsRefusedAndMayLetGo) {
  auto crew = crew_of(make_row, 2);
  const Rows rows(5);
  crew->make(rows.work());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        failing<ArgumentError>(*crew, rows).find("parent") != std::string::npos;
    crew.reset();
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
