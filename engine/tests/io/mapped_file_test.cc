#include "millstream/io/mapped_file.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace millstream
