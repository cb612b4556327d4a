#include "millstream/io/guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "millstream/io/mapped_file.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

constexpr std::int64_t kPages = 16;
const std::int64_t kPage = ::sysconf(_SC_PAGESIZE);

/// A mapped file that was truncated to one page after mapping.
class Shrunk {
 public:
  Shrunk()
      : file(File(
            folder.write("shrunk.bin",
                         std::string(static_cast<std::size_t>(kPages * kPage), 'x')))) {
    std::filesystem::resize_file(file.path(), static_cast<std::uintmax_t>(kPage));
  }
  /// Copies `bytes` at `offset`. Returns null, or the address of the fault.
  const std::byte* copy(std::int64_t offset, std::int64_t bytes) const {
    std::vector<std::byte> to(static_cast<std::size_t>(bytes));
    return guarded(file.range(), [&] {
      std::memcpy(to.data(), file.data() + offset, static_cast<std::size_t>(bytes));
    });
  }

  TemporaryFolder folder;
  MappedFile file;
};

TEST(Guard, ReturnsNullIfTheCopySucceeds) {
  const Shrunk shrunk;
  EXPECT_EQ(shrunk.copy(0, kPage), nullptr);
  EXPECT_EQ(shrunk.copy(100, 1), nullptr);
}

TEST(Guard, ReturnsTheFaultAddress) {
  const Shrunk shrunk;
  for (int round = 0; round < 100; ++round) {
    const std::byte* fault = shrunk.copy(kPage / 2, 4 * kPage);
    ASSERT_NE(fault, nullptr);
    EXPECT_TRUE(shrunk.file.range().holds(fault));
    EXPECT_GE(fault, shrunk.file.data() + kPage);
  }
  EXPECT_EQ(shrunk.copy(0, 10), nullptr);
}

TEST(Guard, DetectsATruncatedFile) {
  const Shrunk shrunk;
  EXPECT_THROW(shrunk.file.read([] {}), IoError);
}

TEST(Guard, HandlesFaultsOnManyThreads) {
  const Shrunk shrunk;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (int round = 0; round < 200; ++round) {
          const bool faults = (round + thread) % 2 == 0;
          const std::byte* fault = shrunk.copy(faults ? 3 * kPage : 0, 64);
          if ((fault != nullptr) != faults) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Guard, PropagatesExceptions) {
  const Shrunk shrunk;
  EXPECT_THROW(guarded(shrunk.file.range(), [] { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr);
}

struct sigaction before;

void give_up(int signal) {
  ::sigaction(signal, &before, nullptr);
  ::raise(signal);
}

TEST(Guard, HandlesASignalRaisedAgainByAnotherHandler) {
  const Shrunk shrunk;
  for (const int flags : {0, SA_NODEFER}) {
    struct sigaction another {};
    another.sa_handler = give_up;
    another.sa_flags = flags;
    ::sigaction(SIGBUS, &another, &before);
    EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr);
    EXPECT_EQ(shrunk.copy(2 * kPage, 1), shrunk.file.data() + 2 * kPage);
  }
}

TEST(Guard, IsReinstalledWhenTheNextFileIsOpened) {
  for (void (*handler)(int) : {SIG_DFL, SIG_IGN, +[](int) {}}) {
    struct sigaction another {};
    another.sa_handler = handler;
    ::sigaction(SIGBUS, &another, nullptr);
    const Shrunk shrunk;
    EXPECT_EQ(shrunk.copy(2 * kPage, 1), shrunk.file.data() + 2 * kPage);
  }
}

TEST(Guard, PreservesTheSignalMask) {
  sigset_t usr1;
  sigset_t found;
  ::sigemptyset(&usr1);
  ::sigaddset(&usr1, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  const Shrunk shrunk;
  EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr);
  ::pthread_sigmask(SIG_UNBLOCK, &usr1, &found);
  EXPECT_EQ(::sigismember(&found, SIGUSR1), 1);
  EXPECT_EQ(::sigismember(&found, SIGBUS), 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(GuardDeathTest, OtherFaultsUseTheDefaultAction) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Shrunk shrunk;
  const auto unguarded = [&] {
    volatile std::byte sink = shrunk.file.data()[2 * kPage];
    static_cast<void>(sink);
  };
  EXPECT_EXIT(unguarded(), testing::KilledBySignal(SIGBUS), "");
  const auto elsewhere = [&] {
    const MappedRange nothing;
    guarded(nothing, unguarded);
  };
  EXPECT_EXIT(elsewhere(), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

void say_and_give_up(int signal) {
  static_cast<void>(::write(STDERR_FILENO, "mine", 4));
  give_up(signal);
}

TEST(GuardDeathTest, OtherFaultsReachALaterHandlerOnce) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const int flags : {0, SA_NODEFER}) {
    const auto fault = [flags] {
      const Shrunk first;
      struct sigaction another {};
      another.sa_handler = say_and_give_up;
      another.sa_flags = flags;
      ::sigaction(SIGBUS, &another, &before);
      const Shrunk shrunk;
      static_cast<void>(shrunk.copy(2 * kPage, 1));
      volatile std::byte sink = shrunk.file.data()[2 * kPage];
      static_cast<void>(sink);
    };
    EXPECT_EXIT(fault(), testing::KilledBySignal(SIGBUS), "^mine$");
  }
}

TEST(GuardDeathTest, OtherFaultsReachThePreviousHandler) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        // Runs in a child process before any file is mapped.
        struct sigaction mine {};
        mine.sa_handler = [](int) { ::_exit(42); };
        ::sigaction(SIGBUS, &mine, nullptr);
        const Shrunk shrunk;
        if (shrunk.copy(2 * kPage, 1) == nullptr) ::_exit(1);
        ::raise(SIGBUS);
      },
      testing::ExitedWithCode(42), "");
}
#endif

}  // namespace
}  // namespace millstream
