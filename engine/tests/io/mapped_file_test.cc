#include "millstream/io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/page_cache.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

constexpr std::int64_t kMiddle = std::int64_t{1} << 19;

class MappedFileOffDisk : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.write("a.bin", std::string(2 * kMiddle, 'x'));
    drop(path_);
    if (MappedFile(File(path_)).cached(kMiddle)) GTEST_SKIP() << "a disk of memory";
  }

  TemporaryFolder folder_;
  std::filesystem::path path_;
};

TEST_F(MappedFileOffDisk, IsNotReadToSeeWhetherItIsInMemory) {
  const MappedFile file{File(path_)};
  EXPECT_FALSE(file.cached(kMiddle));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(file.cached(kMiddle));
  file.will_need(kMiddle, 1);
  EXPECT_TRUE(soon_cached(file, kMiddle));
  EXPECT_FALSE(file.cached(0));
}

TEST_F(MappedFileOffDisk, IsNotKnownToBeInMemoryIfItIsOfOthers) {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) GTEST_SKIP() << "needs to become another user";
  File opened(path_);
  ASSERT_EQ(::seteuid(kNobody), 0);
  const MappedFile others(std::move(opened));
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_FALSE(others.cached(kMiddle));
  std::vector<std::byte> bytes(1);
  others.read(kMiddle, bytes);
  EXPECT_FALSE(others.cached(kMiddle));
  EXPECT_TRUE(MappedFile(File(path_)).cached(kMiddle));
}

/// Lowers how many descriptors this process may have, until it ends.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const struct rlimit few = {most, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  struct rlimit before_ {};
};

TEST(MappedFile, KeepsHalfOfTheDescriptors) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", std::string(5000, 'x'));
  const FewDescriptors few(64);
  std::vector<std::unique_ptr<MappedFile>> files;
  for (int i = 0; i < 200; ++i) {
    files.push_back(std::make_unique<MappedFile>(File(path)));
  }
  EXPECT_TRUE(files.front()->has_descriptor());
  EXPECT_FALSE(files.back()->has_descriptor());
}

TEST(MappedFile, ReadsWithoutADescriptor) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", std::string(4999, '\0') + "x");
  const FewDescriptors few(6);
  const MappedFile file{File(path)};
  ASSERT_FALSE(file.has_descriptor());
  std::vector<std::byte> bytes(2);
  file.read(4998, bytes);
  EXPECT_EQ(bytes[1], std::byte{'x'});
  EXPECT_THROW(file.read(4999, bytes), IoError);
  // Another file under its name says nothing of it.
  std::filesystem::rename(folder.write("b.bin", "short"), path);
  file.read(10, bytes);
  file.check_size();
}

TEST(MappedFile, SeesThatItWasCutWithoutADescriptor) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", std::string(50'000, 'x'));
  const FewDescriptors few(6);
  const MappedFile file{File(path)};
  ASSERT_FALSE(file.has_descriptor());
  std::filesystem::resize_file(path, 100);
  std::vector<std::byte> bytes(2);
  EXPECT_NE(error_of<IoError>([&] { file.read(40'000, bytes); }).find("has 100 now"),
            std::string::npos);
  EXPECT_THROW(file.read(200, bytes), IoError);
}

/// A file of a page and some zeros, whose descriptor is closed.
class ClosedFile : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.write(
      "a.bin", std::string(4096, 'x') + std::string(100, 'y') + std::string(100, '\0'));
};

TEST_F(ClosedFile, IsSeenToBeCutFromAnotherFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  const MappedFile file(File("a.bin"), MappedFile::Descriptor::kClosed);
  std::filesystem::current_path(before);
  file.check_size();
  std::filesystem::resize_file(path_, 4150);
  EXPECT_THROW(file.check_size(), IoError);
}

TEST_F(ClosedFile, IsNotTakenForWholeWhereNothingSaysSo) {
  const MappedFile file(File(path_), MappedFile::Descriptor::kClosed);
  std::filesystem::rename(path_, folder_.path() / "b.bin");
  try {
    file.check_size();
    ADD_FAILURE() << "nobody knows its size";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("no longer there under that name"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(ClosedFile, IsKnownByWhatWasSeenOfItUnderItsName) {
  const MappedFile file(File(path_), MappedFile::Descriptor::kClosed);
  file.check_size();
  const auto elsewhere = folder_.path() / "b.bin";
  std::filesystem::rename(path_, elsewhere);
  folder_.write("a.bin", "short");
  file.check_size();
  std::filesystem::resize_file(elsewhere, 4150);
  EXPECT_THROW(file.check_size(), IoError);
}

}  // namespace
}  // namespace millstream
