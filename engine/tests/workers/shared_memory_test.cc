#include "millstream/workers/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {
namespace {

std::int64_t bytes_in_use(const SharedMemory& memory) {
  struct stat status = {};
  EXPECT_EQ(fstat(memory.descriptor(), &status), 0);
  return status.st_blocks * 512;
}

bool all(const std::byte* data, std::int64_t bytes, int value) {
  return std::all_of(data, data + bytes,
                     [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(SharedMemory, BlocksAreZeroedAndSeparate) {
  const auto memory = SharedMemory::make();
  EXPECT_GE(memory->descriptor(), Descriptor::kLifted);
  const Block first = memory->block(5000);
  const Block second = memory->block(1);
  EXPECT_EQ(first.size(), 5000);
  EXPECT_TRUE(all(first.data(), 5000, 0));
  std::memset(first.data(), 7, 5000);
  EXPECT_TRUE(all(second.data(), 1, 0));
}

TEST(SharedMemory, LocatesAddressesInItsBlocks) {
  const auto memory = SharedMemory::make();
  const Block first = memory->block(5000);
  const Block second = memory->block(100);
  const auto inside = memory->location(second.data() + 33);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->at, 33);
  EXPECT_GE(inside->bytes, 100);
  EXPECT_NE(inside->offset, memory->location(first.data())->offset);
  std::byte elsewhere{};
  EXPECT_FALSE(memory->location(&elsewhere));
  EXPECT_FALSE(memory->location(nullptr));
  EXPECT_FALSE(SharedMemory::make()->location(first.data()));
}

TEST(SharedMemory, FreesBlocksAndNeverReusesTheirOffsets) {
  const auto memory = SharedMemory::make();
  const std::int64_t before = bytes_in_use(*memory);
  std::optional<Block> block = memory->block(1 << 20);
  const std::byte* data = block->data();
  const SharedLocation was = *memory->location(data);
  EXPECT_GE(bytes_in_use(*memory), before + (1 << 20));
  block.reset();
  EXPECT_EQ(bytes_in_use(*memory), before);
  EXPECT_FALSE(memory->location(data));
  const Block next = memory->block(1 << 20);
  EXPECT_NE(memory->location(next.data())->offset, was.offset);
}

TEST(SharedMemory, BlocksOutliveTheSharedMemory) {
  auto memory = SharedMemory::make();
  const Block block = memory->block(10);
  memory.reset();
  std::memset(block.data(), 3, 10);
  EXPECT_TRUE(all(block.data(), 10, 3));
}

TEST(SharedMemory, RejectsSizesThatAreImpossible) {
  const auto memory = SharedMemory::make();
  EXPECT_THROW(memory->block(-1), ArgumentError);
  EXPECT_THROW(memory->block(std::int64_t{1} << 60), ArgumentError);
  const std::int64_t before = bytes_in_use(*memory);
  EXPECT_THROW(memory->block(std::int64_t{1} << 50), IoError);
  EXPECT_EQ(bytes_in_use(*memory), before);
}

TEST(SharedMemory, ServesManyThreads) {
  const auto memory = SharedMemory::make();
  {
    std::vector<std::jthread> threads;
    for (int id = 1; id <= 4; ++id) {
      threads.emplace_back([&, id] {
        for (int i = 0; i < 50; ++i) {
          const Block block = memory->block(1000 * id);
          std::memset(block.data(), id, static_cast<std::size_t>(block.size()));
          EXPECT_TRUE(memory->location(block.data() + 999));
          EXPECT_TRUE(all(block.data(), block.size(), id));
        }
      });
    }
  }
  EXPECT_EQ(bytes_in_use(*memory), 0);
}

#if !defined(__SANITIZE_THREAD__)
TEST(SharedMemory, AForkedProcessCannotFreeBlocksOfItsParent) {
  const auto memory = SharedMemory::make();
  std::optional<Block> block = memory->block(100);
  std::memset(block->data(), 9, 100);
  const pid_t child = fork();
  if (child == 0) {
    const bool seen = all(block->data(), 100, 9);
    block.reset();
    try {
      memory->block(10);
    } catch (const ArgumentError&) {
      _exit(seen ? 0 : 1);
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(all(block->data(), 100, 9));
}
#endif

TEST(MappedBlocks, SharesWritesInBothDirections) {
  const auto memory = SharedMemory::make();
  const Block block = memory->block(100);
  MappedBlocks mapped(memory->descriptor());
  std::byte* there = mapped.at(*memory->location(block.data() + 10));
  EXPECT_NE(there, block.data() + 10);
  block.data()[10] = std::byte{42};
  EXPECT_EQ(*there, std::byte{42});
  *there = std::byte{43};
  EXPECT_EQ(block.data()[10], std::byte{43});
  EXPECT_EQ(mapped.at(*memory->location(block.data())) + 10, there);
}

TEST(MappedBlocks, UnmapsAndRemapsBlocksWhenThereAreMany) {
  const auto memory = SharedMemory::make();
  MappedBlocks mapped(memory->descriptor());
  std::vector<Block> blocks;
  for (int i = 0; i < 600; ++i) {
    blocks.push_back(memory->block(1));
    *blocks.back().data() = static_cast<std::byte>(i);
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(*mapped.at(*memory->location(blocks[i].data())),
                static_cast<std::byte>(i));
    }
  }
}

TEST(MappedBlocks, ThrowsIfABlockCannotBeMapped) {
  const auto memory = SharedMemory::make();
  MappedBlocks mapped(memory->descriptor());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(mapped.at({123, 4096, 0}), IoError);  // not page-aligned
  }
}

}  // namespace
}  // namespace millstream
