#include "millstream/io/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <vector>

#include "millstream/io/file_writer.h"
#include "temporary_folder.h"

namespace {

/// The inodes of synced files, and whether `watched` existed at that time.
struct Synced {
  ino_t inode;
  bool there;
};
std::vector<Synced> synced;
std::filesystem::path watched;

}  // namespace

/// Replaces the function of the C library: records the call, then runs it.
extern "C" int fsync(int descriptor) {
  struct stat status {};
  ::fstat(descriptor, &status);
  synced.push_back({status.st_ino, std::filesystem::exists(watched)});
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace millstream {
namespace {

TEST(File, ReadsAtOffsets) {
  const TemporaryFolder folder;
  const File file(folder.write("a.bin", "0123456789"));
  EXPECT_EQ(file.size(), 10);
  std::string to(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(to)));
  EXPECT_EQ(to, "3456");
  EXPECT_EQ(file.bytes(8, 100).size(), 2u);
  EXPECT_EQ(file.bytes(20, 1).size(), 0u);
  EXPECT_EQ(file.bytes(0, -1).size(), 0u);
}

TEST(File, ErrorNamesTheMissingFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "none.bin";
  try {
    const File file(path);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOENT);
    EXPECT_EQ(error.fields().file.path, path);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos);
  }
}

TEST(File, RejectsFolders) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of<DataError>([&] { const File file(folder.path()); }),
            folder.path().string() + ": offset 0: expected a file, found a directory");
}

TEST(File, ErrorNamesTheEndOfTheFile) {
  const TemporaryFolder folder;
  const File file(folder.write("a.bin", "0123456789"));
  std::string to(4, ' ');
  const std::string what =
      error_of<IoError>([&] { file.read(8, std::as_writable_bytes(std::span(to))); });
  EXPECT_NE(what.find("offset 10: expected 2 more bytes"), std::string::npos) << what;
}

TEST(FileWriter, RenamesOnCommit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "new" / "a.bin";
  std::string large(5'000'000, ' ');  // larger than the write buffer
  std::iota(large.begin(), large.end(), 'a');
  FileWriter writer(path);
  writer.write("head");
  writer.write(large);
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  EXPECT_EQ(writer.size(), 5'000'004);
  EXPECT_EQ(contents(path), "head" + large);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}),
            1);
}

TEST(FileWriter, SyncsTheFolderAfterTheRename) {
  const TemporaryFolder folder;
  watched = folder.path() / "a.bin";
  FileWriter writer(watched);
  writer.write("new");
  synced.clear();
  writer.commit();
  struct stat status {};
  ASSERT_EQ(::stat(folder.path().c_str(), &status), 0);
  ASSERT_EQ(synced.size(), 1u);
  EXPECT_EQ(synced[0].inode, status.st_ino);
  EXPECT_TRUE(synced[0].there);
}

TEST(FileWriter, DeletesTheTemporaryFileWithoutCommit) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", "old");
  { FileWriter(path).write("new"); }
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THROW(FileWriter(folder.path()), IoError);
}

}  // namespace
}  // namespace millstream
