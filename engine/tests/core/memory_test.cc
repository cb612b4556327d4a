#include "millstream/core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0;
}

TEST(Block, IsAlignedAndHasTheRequestedSize) {
  for (const std::int64_t bytes : {0, 1, 63, 64, 65, 4096, 1 << 20}) {
    const Block block(bytes);
    EXPECT_TRUE(aligned(block.data()));
    EXPECT_NE(block.data(), nullptr);
    EXPECT_EQ(block.size(), bytes);
    std::memset(block.data(), 1, static_cast<std::size_t>(bytes));
  }
}

TEST(Block, RejectsImpossibleSizes) {
  for (const std::int64_t bytes : {std::int64_t{-1}, (std::int64_t{1} << 56) + 1}) {
    try {
      const Block block(bytes);
      FAIL();
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)),
                std::string::npos);
    }
  }
}

TEST(Memory, AllocationsAreAlignedAndDisjoint) {
  Memory memory;
  std::vector<std::pair<std::byte*, std::int64_t>> given;
  for (std::int64_t i = 0; i < 300; ++i) {
    const std::int64_t bytes = i % 50 == 49 ? 100'000 * i : i * 37 % 5000;
    std::byte* data = memory.allocate(bytes);
    EXPECT_TRUE(aligned(data));
    std::memset(data, static_cast<int>(i % 251), static_cast<std::size_t>(bytes));
    given.emplace_back(data, bytes);
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto [data, bytes] = given[i];
    const std::byte expected{static_cast<unsigned char>(i % 251)};
    EXPECT_TRUE(
        std::all_of(data, data + bytes, [&](std::byte b) { return b == expected; }));
  }
}

TEST(Memory, EmptyAllocationsHaveDistinctAddresses) {
  Memory memory;
  std::byte* first = memory.allocate(0);
  std::byte* second = memory.allocate(0);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(first, second);
}

TEST(Memory, ArraysHaveTheRequestedLength) {
  Memory memory;
  const auto numbers = memory.array<double>(17);
  EXPECT_EQ(numbers.size(), 17u);
  std::ranges::fill(numbers, 2.5);
  EXPECT_TRUE(memory.array<double>(0).empty());
}

TEST(Memory, ReusesItsBlocksAfterReset) {
  Memory memory;
  const auto round = [&] {
    std::vector<std::byte*> given;
    for (int i = 0; i < 40; ++i) given.push_back(memory.allocate(50'000));
    memory.reset();
    return given;
  };
  for (int i = 0; i < 4; ++i) round();
  const auto settled = round();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(round(), settled);
}

TEST(Memory, WorksAfterAFailedAllocation) {
  Memory memory;
  std::byte* before = memory.allocate(8);
  std::memset(before, 7, 8);
  EXPECT_THROW(memory.allocate(std::int64_t{1} << 57), ArgumentError);
  std::byte* after = memory.allocate(8);
  std::memset(after, 9, 8);
  EXPECT_EQ(before[0], std::byte{7});
  memory.reset();
  EXPECT_NE(memory.allocate(100), nullptr);
}

TEST(ThreadMemory, IsResetByEveryCall) {
  std::byte* first = thread_memory().allocate(100);
  EXPECT_EQ(thread_memory().allocate(100), first);
}

TEST(ThreadMemory, BelongsToItsThread) {
  const Memory* here = &thread_memory();
  const Memory* there = here;
  std::jthread([&] { there = &thread_memory(); }).join();
  EXPECT_NE(here, there);
}

}  // namespace
}  // namespace millstream
