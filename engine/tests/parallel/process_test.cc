#include "millstream/parallel/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "temporary_folder.h"

namespace millstream {
namespace {

TEST(Process, TellsWhetherPagesOfAFileWereWaitedFor) {
  const TemporaryFolder folder;
  const std::size_t bytes = std::size_t{1} << 16;
  const auto path = folder.write("cold.bin", std::string(bytes, 'x'));
  const int file = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  unsigned char there = 1;
  ::mincore(mapped, 1, &there);

  waited_for_pages();
  EXPECT_FALSE(waited_for_pages());
  const volatile char* text = static_cast<const char*>(mapped);
  EXPECT_EQ(text[0], 'x');
  EXPECT_EQ(waited_for_pages(), (there & 1) == 0);
  EXPECT_EQ(text[0], 'x');
  EXPECT_FALSE(waited_for_pages());
  ::munmap(mapped, bytes);
  ::close(file);
}

}  // namespace
}  // namespace millstream
