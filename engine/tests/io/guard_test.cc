#include "millstream/io/guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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

/// A mapped file that was cut to one page behind the map's back.
class Shrunk {
 public:
  Shrunk()
      : file(File(
            folder.write("shrunk.bin",
                         std::string(static_cast<std::size_t>(kPages * kPage), 'x')))) {
    std::filesystem::resize_file(file.path(), static_cast<std::uintmax_t>(kPage));
  }
  /// Copies `bytes` at `offset`; null, or where it failed.
  const std::byte* copy(std::int64_t offset, std::int64_t bytes) const {
    std::vector<std::byte> to(static_cast<std::size_t>(bytes));
    const auto ranges = std::span(&file.range(), 1);
    return guarded(ranges, [&] {
      std::memcpy(to.data(), file.data() + offset, static_cast<std::size_t>(bytes));
    });
  }

  TemporaryFolder folder;
  MappedFile file;
};

TEST(Guard, PassesWhatCanBeRead) {
  const Shrunk shrunk;
  EXPECT_EQ(shrunk.copy(0, kPage), nullptr);
  EXPECT_EQ(shrunk.copy(100, 1), nullptr);
}

TEST(Guard, ReportsWhatCannotBeRead) {
  const Shrunk shrunk;
  for (int round = 0; round < 100; ++round) {
    const std::byte* fault = shrunk.copy(kPage / 2, 4 * kPage);
    ASSERT_NE(fault, nullptr);
    EXPECT_TRUE(shrunk.file.range().holds(fault));
    EXPECT_GE(fault, shrunk.file.data() + kPage);
  }
  EXPECT_EQ(shrunk.copy(0, 10), nullptr);
  const std::string what = shrunk.file.lost(shrunk.file.data() + kPage).what();
  EXPECT_NE(what.find("shrunk.bin: offset 4096"), std::string::npos) << what;
}

TEST(Guard, SeesThatTheFileIsSmaller) {
  const Shrunk shrunk;
  EXPECT_THROW(shrunk.file.check_size(), IoError);
}

TEST(Guard, FaultsOnManyThreadsAtOnce) {
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

TEST(Guard, LetsExceptionsThrough) {
  const Shrunk shrunk;
  const auto ranges = std::span(&shrunk.file.range(), 1);
  EXPECT_THROW(guarded(ranges, [] { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr);
}

TEST(Guard, NestsAndJumpsToTheOwnerOfTheFile) {
  const Shrunk outer;
  const Shrunk inner;
  const auto outer_ranges = std::span(&outer.file.range(), 1);
  const auto inner_ranges = std::span(&inner.file.range(), 1);
  volatile bool went_on = false;
  volatile std::byte sink{};
  const std::byte* fault = guarded(outer_ranges, [&] {
    guarded(inner_ranges, [&] { sink = outer.file.data()[2 * kPage]; });
    went_on = true;
  });
  EXPECT_EQ(fault, outer.file.data() + 2 * kPage);
  EXPECT_FALSE(went_on);
  EXPECT_NE(inner.copy(2 * kPage, 1), nullptr);
}

struct sigaction before;

void give_up(int signal) {
  ::sigaction(signal, &before, nullptr);
  ::raise(signal);
}

TEST(Guard, TakesASignalThatAnotherHandlerRaisesAgain) {
  const Shrunk shrunk;
  for (const int flags : {0, SA_NODEFER}) {
    struct sigaction another {};
    another.sa_handler = give_up;
    another.sa_flags = flags;
    EXPECT_EQ(shrunk.copy(0, 1), nullptr);  // so that the guard is not looked for now
    ::sigaction(SIGBUS, &another, &before);
    EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr);
    EXPECT_EQ(shrunk.copy(2 * kPage, 1), shrunk.file.data() + 2 * kPage);
  }
}

/// Longer than a thread trusts that the guard is in its place.
void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TEST(Guard, TakesItsPlaceBack) {
  const Shrunk shrunk;
  for (void (*handler)(int) : {SIG_DFL, SIG_IGN, +[](int) {}}) {
    struct sigaction another {};
    another.sa_handler = handler;
    ::sigaction(SIGBUS, &another, nullptr);
    wait_a_moment();
    EXPECT_EQ(shrunk.copy(2 * kPage, 1), shrunk.file.data() + 2 * kPage);
  }
}

TEST(Guard, WorksWhereSignalsAreBlocked) {
  const Shrunk shrunk;
  sigset_t all;
  sigset_t before_that;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_that);
  EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr);
  std::jthread([&] { EXPECT_NE(shrunk.copy(2 * kPage, 1), nullptr); });
  ::pthread_sigmask(SIG_SETMASK, &before_that, nullptr);
}

/// Up to where a copy from the file would be whole; -1 where it faults.
std::int64_t whole_to(const MappedFile& file) {
  std::int64_t whole = -1;
  const std::byte* fault =
      guarded(std::span(&file.range(), 1), [&] { whole = file.whole_to(); });
  return fault == nullptr ? whole : -1;
}

/// A file of a page of `x` and then these bytes.
MappedFile with_last_page(const TemporaryFolder& folder, const std::string& bytes) {
  const std::string first(static_cast<std::size_t>(kPage), 'x');
  return MappedFile(File(folder.write("whole.bin", first + bytes)));
}

TEST(Guard, SeesThatTheLastPageIsLost) { EXPECT_EQ(whole_to(Shrunk().file), -1); }

TEST(Guard, ByteThatIsNotZeroSaysThatThoseBeforeItAreWhole) {
  const TemporaryFolder folder;
  const MappedFile ends = with_last_page(folder, "abc");
  EXPECT_EQ(whole_to(ends), kPage + 3);

  const MappedFile padded = with_last_page(folder, std::string("ab\0\0", 4));
  EXPECT_EQ(whole_to(padded), kPage);  // for all that is known
  padded.check_size();
  EXPECT_EQ(whole_to(padded), kPage + 2);
  std::filesystem::resize_file(padded.path(), static_cast<std::uintmax_t>(kPage + 3));
  EXPECT_EQ(whole_to(padded), kPage + 2);
  EXPECT_THROW(padded.check_size(), IoError);
  std::filesystem::resize_file(padded.path(), static_cast<std::uintmax_t>(kPage + 1));
  EXPECT_EQ(whole_to(padded), kPage);
  EXPECT_THROW(padded.check_size(), IoError);
}

TEST(Guard, NothingSaysThatZerosAreWhole) {
  const TemporaryFolder folder;
  const MappedFile zeros = with_last_page(folder, std::string(100, '\0'));
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(whole_to(zeros), kPage);
    zeros.check_size();
  }
  const MappedFile nothing(File(folder.write("nothing.bin", "")));
  EXPECT_EQ(whole_to(nothing), 0);
  nothing.check_size();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(GuardDeathTest, LeavesOtherFaultsToTheSystem) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Shrunk shrunk;
  const auto unguarded = [&] {
    volatile std::byte sink = shrunk.file.data()[2 * kPage];
    static_cast<void>(sink);
  };
  EXPECT_EXIT(unguarded(), testing::KilledBySignal(SIGBUS), "");
  const auto elsewhere = [&] {
    const MappedRange nothing;
    guarded(std::span(&nothing, 1), unguarded);
  };
  EXPECT_EXIT(elsewhere(), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

void say_and_give_up(int signal) {
  static_cast<void>(::write(STDERR_FILENO, "mine", 4));
  give_up(signal);
}

TEST(GuardDeathTest, LeavesOtherFaultsOnceToAHandlerThatCameLater) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const int flags : {0, SA_NODEFER}) {
    const auto fault = [flags] {
      const Shrunk shrunk;
      struct sigaction another {};
      another.sa_handler = say_and_give_up;
      another.sa_flags = flags;
      ::sigaction(SIGBUS, &another, &before);
      wait_a_moment();
      static_cast<void>(shrunk.copy(2 * kPage, 1));
      volatile std::byte sink = shrunk.file.data()[2 * kPage];
      static_cast<void>(sink);
    };
    EXPECT_EXIT(fault(), testing::KilledBySignal(SIGBUS), "^mine$");
  }
}

TEST(GuardDeathTest, LeavesOtherFaultsToTheHandlerBefore) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        // In a process of its own, before anything was mapped.
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
