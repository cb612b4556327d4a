#include "millstream/parallel/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <vector>

namespace millstream {
namespace {

TEST(ThreadPool, RunsEveryTask) {
  std::atomic<int> ran{0};
  std::latch all(100);
  ThreadPool pool(3);
  for (int i = 0; i < 100; ++i) {
    pool.submit([&] {
      ++ran;
      all.count_down();
    });
  }
  all.wait();
  EXPECT_EQ(ran, 100);
}

TEST(ThreadPool, GrowsAndNeverShrinks) {
  ThreadPool pool(1);
  pool.grow(4);
  EXPECT_EQ(pool.threads(), 4);
  pool.grow(2);
  EXPECT_EQ(pool.threads(), 4);
}

TEST(ThreadPool, RangesCoverEverythingOnce) {
  ThreadPool pool(3);
  for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t most : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.for_ranges(count, most, 3, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, RangesDoNotWaitForABusyPool) {
  ThreadPool pool(1);
  std::latch started(1);
  std::latch release(1);
  pool.submit([&] {
    started.count_down();
    release.wait();
  });
  started.wait();
  int done = 0;
  pool.for_ranges(10, 1, 4, [&](std::int64_t, std::int64_t) { ++done; });
  EXPECT_EQ(done, 10);
  release.count_down();
}

TEST(ThreadPool, RangesRethrowExceptions) {
  ThreadPool pool(2);
  const auto failing = [](std::int64_t begin, std::int64_t) {
    if (begin == 5) throw std::runtime_error("range five");
  };
  EXPECT_THROW(pool.for_ranges(10, 1, 2, failing), std::runtime_error);
  int done = 0;
  pool.for_ranges(1, 1, 2, [&](std::int64_t, std::int64_t) { ++done; });
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace millstream
