#include "millstream/parallel/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <latch>
#include <memory>
#include <string>

#include "millstream/parallel/thread_pool.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

TEST(Process, ReportsMajorPageFaults) {
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

TEST(Process, BudgetIsAtLeastOne) { EXPECT_GE(cpu_budget(), 1); }

#if !defined(__SANITIZE_THREAD__)
TEST(Process, AForkedProcessHasItsOwnPool) {
  ThreadPool& before = shared_pool();
  // A starting thread may hold a lock of the sanitizer's allocator. The forked process
  // would wait for that lock forever.
  const auto started = std::make_shared<std::latch>(before.threads());
  for (int i = 0; i < before.threads(); ++i) {
    before.submit([started] { started->arrive_and_wait(); });
  }
  started->wait();
  const std::uint64_t generation = fork_generation();
  const pid_t child = fork();
  if (child == 0) {
    const bool anew = fork_generation() == generation + 1 && &shared_pool() != &before;
    std::latch ran(1);
    shared_pool().submit([&] { ran.count_down(); });
    ran.wait();
    _exit(anew ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(fork_generation(), generation);
}
#endif

}  // namespace
}  // namespace millstream
