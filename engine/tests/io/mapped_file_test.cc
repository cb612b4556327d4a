#include "millstream/io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
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

TEST_F(MappedFileOffDisk, QueryingTheCacheReadsNothing) {
  const MappedFile file{File(path_)};
  EXPECT_FALSE(file.cached(kMiddle));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(file.cached(kMiddle));
  file.will_need(kMiddle, 1);
  EXPECT_TRUE(soon_cached(file, kMiddle));
  EXPECT_FALSE(file.cached(0));
}

TEST_F(MappedFileOffDisk, FilesOfOtherUsersAreNeverReportedAsCached) {
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

/// Lowers the process's limit of descriptors until this object is destroyed.
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

TEST(MappedFile, KeepsFewDescriptors) {
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

/// A mapped file with or without a descriptor. It has none if too many are open.
class CutFile : public testing::TestWithParam<bool> {
 protected:
  /// Reads the whole file. Throws if a part of it cannot be read.
  static void read_all(const MappedFile& file) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
    file.read([&] { std::memcpy(bytes.data(), file.data(), bytes.size()); });
  }

  MappedFile opened(const std::filesystem::path& path) {
    std::vector<File> others;
    while (!GetParam() && others.size() < 100) others.emplace_back(path);
    return MappedFile(File(path));
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.write("a.bin", std::string(5000, 'x'));
};

TEST_P(CutFile, RaisesIoErrorAtAnyLength) {
  const MappedFile file = opened(path_);
  ASSERT_EQ(file.has_descriptor(), GetParam());
  read_all(file);
  for (const std::uintmax_t size : {4999u, 4096u, 100u}) {
    std::filesystem::resize_file(path_, size);
    const std::string error = error_of<IoError>([&] { read_all(file); });
    EXPECT_NE(error.find(text("has ", size, " now")), std::string::npos) << error;
    std::vector<std::byte> bytes(2);
    EXPECT_THROW(file.read(4998, bytes), IoError);
  }
}

TEST_P(CutFile, IsDetectedAfterAChangeOfDirectory) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  const MappedFile file = opened("a.bin");
  std::filesystem::current_path(before);
  read_all(file);
  std::filesystem::resize_file(path_, 4150);
  EXPECT_THROW(read_all(file), IoError);
}

TEST_P(CutFile, StaysReadableAfterItIsReplaced) {
  const MappedFile file = opened(path_);
  std::filesystem::rename(folder_.write("b.bin", "short"), path_);
  read_all(file);
  std::vector<std::byte> bytes(2);
  file.read(4998, bytes);
  EXPECT_EQ(bytes[1], std::byte{'x'});
  EXPECT_THROW(file.read(4999, bytes), IoError);
}

INSTANTIATE_TEST_SUITE_P(Descriptor, CutFile, testing::Bool());

}  // namespace
}  // namespace millstream
