#include "millstream/codec/pickle.h"

#include <gtest/gtest.h>

#include "millstream/codec/cifar.h"
#include "millstream/codec/tar.h"
#include "pickled.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

using Kind = PickleValue::Kind;

std::string error(std::string_view bytes) {
  ByteReader reader(as_bytes(bytes), "x.pkl");
  return error_of<DataError>([&] { Pickle{reader}; });
}

TEST(Pickle, ReadsNumbersTextAndLists) {
  using namespace std::string_literals;
  const std::string bytes =
      "\x80\x02}(U\x01"
      "aK\x05U\x01"
      "b](J\xFE\xFF\xFF\xFFM\x01\x02"
      "\x8A\x02\x00\x80\x8A\x00"
      "eu."s;
  ByteReader reader(as_bytes(bytes), "x.pkl");
  const Pickle pickle(reader);
  ASSERT_EQ(pickle.root().kind, Kind::kDict);
  EXPECT_EQ(pickle.find(pickle.root(), "a")->integer, 5);
  EXPECT_EQ(pickle.find(pickle.root(), "c"), nullptr);
  const PickleValue& list = *pickle.find(pickle.root(), "b");
  ASSERT_EQ(list.items.size(), 4u);
  EXPECT_EQ(pickle[list.items[0]].integer, -2);
  EXPECT_EQ(pickle[list.items[1]].integer, 0x201);
  EXPECT_EQ(pickle[list.items[2]].integer, -32768);
  EXPECT_EQ(pickle[list.items[3]].integer, 0);
}

TEST(Pickle, RecordsCallsWithoutRunningThem) {
  const std::string bytes = "cposix\nsystem\nU\x02ls\x85R.";
  ByteReader reader(as_bytes(bytes), "x.pkl");
  const Pickle pickle(reader);
  ASSERT_EQ(pickle.root().kind, Kind::kCall);
  const PickleValue& global = pickle[pickle.root().items[0]];
  EXPECT_EQ(pickle[global.items[1]].bytes, "system");
}

TEST(Pickle, ErrorsNameOffsetExpectedAndFound) {
  EXPECT_EQ(error("K"), "x.pkl: offset 1: expected 1 bytes of a number, found 0 bytes");
  EXPECT_EQ(error("."), "x.pkl: offset 0: expected a value on the stack, found none");
  EXPECT_EQ(error("NNi"),
            "x.pkl: offset 2: expected an instruction that creates numbers, text or "
            "lists, found instruction 105, which is not run");
  EXPECT_EQ(error("Nt."), "x.pkl: offset 1: expected a mark on the stack, found none");
  EXPECT_EQ(error("NNa."),
            "x.pkl: offset 2: expected a container to add values to, found another "
            "value");
  EXPECT_EQ(error("h\x01."),
            "x.pkl: offset 0: expected the number of a stored value, found 1");
  EXPECT_EQ(error("(Nd."),
            "x.pkl: offset 2: expected pairs of keys and values, found 1 values");
  EXPECT_NE(error("T\xFF\xFF\xFF\x7F"
                  "abc")
                .find("expected 2147483647 bytes"),
            std::string::npos);
  EXPECT_NE(error("N(00t.").find("x.pkl: offset"), std::string::npos);
}

TEST(Pickle, RejectsMoreThanAMillionValues) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  for (const std::size_t values : {kMost, kMost + 1}) {
    const std::string bytes = "\x80\x02" + std::string(values, 'N') + ".";
    ByteReader reader(as_bytes(bytes), "x");
    EXPECT_EQ(error_of<DataError>([&] { Pickle{reader}; }),
              values == kMost ? ""
                              : "x: offset 1048578: expected at most 1048576 values, "
                                "found more");
  }
}

TEST(CifarPickle, FindsImagesAndLabels) {
  const std::string images = std::string(3072, 'a') + std::string(3072, 'b');
  const PickledBatch batch = {images, {{"labels", {7, 9}}}};
  for (const std::string& bytes : {batch.protocol2(), batch.protocol5()}) {
    ByteReader reader(as_bytes(bytes), "x", 1000);
    const CifarBatch parsed = parse_cifar_pickle(reader, CifarKind::kCifar10);
    EXPECT_EQ(parsed.images, 2);
    EXPECT_EQ(bytes.substr(static_cast<std::size_t>(parsed.offset) - 1000, 6144),
              images);
    EXPECT_EQ(parsed.labels, (std::vector<std::uint8_t>{7, 9}));
  }
}

TEST(Pickle, ReadsLatin1EncodedTextAsBytes) {
  const std::string call = "c_codecs\nencode\n";
  const std::string codec = std::string("X\x06\0\0\0", 5) + "latin1\x86R.";
  const auto bytes_of = [&](const std::string& utf8) {
    std::string bytes = call;
    bytes += 'X';
    bytes += raw(static_cast<std::uint32_t>(utf8.size()));
    bytes += utf8;
    bytes += codec;
    ByteReader reader(as_bytes(bytes), "x.pkl");
    const Pickle pickle(reader);
    EXPECT_TRUE(pickle.root().is_latin1);
    const auto found = latin1_bytes(pickle.root(), reader);
    return std::string(reinterpret_cast<const char*>(found.data()), found.size());
  };
  EXPECT_EQ(bytes_of("a\x7F\xC2\x80\xC3\xBF"), "a\x7F\x80\xFF");
  EXPECT_EQ(bytes_of(""), "");
  EXPECT_EQ(
      error_of<DataError>([&] { bytes_of("a\xC4\x80"); }),
      "x.pkl: offset 22: expected a character below 256 in UTF-8, found byte 196");
  EXPECT_THROW(bytes_of("\xC2"), DataError);
  EXPECT_THROW(bytes_of("\xC2\x41"), DataError);
  EXPECT_THROW(bytes_of("\x80"), DataError);

  const std::string other = call + std::string("X\1\0\0\0aX\5\0\0\0utf-8\x86R.", 19);
  ByteReader reader(as_bytes(other), "x.pkl");
  EXPECT_EQ(Pickle(reader).root().kind, Kind::kCall);
}

TEST(CifarPickle, DecodesImagesStoredAsText) {
  std::string images;
  for (int i = 0; i < 6144; ++i) images += static_cast<char>(i * 31);
  const PickledBatch batch = {images, {{"labels", {7, 9}}}};
  const std::string bytes = batch.python3_protocol2();
  ByteReader reader(as_bytes(bytes), "x", 1000);
  const CifarBatch parsed = parse_cifar_pickle(reader, CifarKind::kCifar10);
  EXPECT_EQ(parsed.images, 2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(parsed.decoded.data()),
                        parsed.decoded.size()),
            images);
  EXPECT_EQ(parsed.labels, (std::vector<std::uint8_t>{7, 9}));
}

TEST(CifarPickle, RejectsOtherPickles) {
  const std::string images(6144, 'a');
  const auto refuses = [](const std::string& bytes, CifarKind kind) {
    ByteReader reader(as_bytes(bytes), "x");
    return error_of<DataError>([&] { parse_cifar_pickle(reader, kind); });
  };
  const auto ten = CifarKind::kCifar10;
  EXPECT_EQ(refuses(PickledBatch{images, {{"labels", {7}}}}.protocol2(), ten),
            "x: offset 0: expected 2 labels in a list, found 1 values");
  EXPECT_EQ(refuses(PickledBatch{images, {{"labels", {7, 9}}}}.protocol2(),
                    CifarKind::kCifar100),
            "x: offset 0: expected a dict with 'fine_labels', found none");
  EXPECT_EQ(refuses(PickledBatch{images, {{"labels", {7, 10}}}}.protocol2(), ten),
            "x: offset 0: expected 'labels' of sample 1 to be from 0 to 9, found 10");
  EXPECT_NE(refuses("N.", ten), "");
  EXPECT_NE(refuses("}(U\x04"
                    "dataNu.",
                    ten),
            "");
  const std::string whole = PickledBatch{images, {{"labels", {7, 9}}}}.protocol2();
  std::string wrong = whole;
  wrong.replace(wrong.find("u1K"), 2, "i1");
  EXPECT_EQ(refuses(wrong, ten),
            "x: offset 0: expected 'data' of dtype u1 in C order, found dtype i1 in C "
            "order");
  wrong = whole;
  wrong[wrong.find("tb\x89") + 2] = '\x88';
  EXPECT_EQ(refuses(wrong, ten),
            "x: offset 0: expected 'data' of dtype u1 in C order, found dtype u1 in "
            "Fortran order");
  for (std::size_t length = 0; length < whole.size(); length += 37) {
    EXPECT_NE(refuses(whole.substr(0, length), ten), "") << length;
  }
}

TEST(Tar, ReadsHeaders) {
  const std::string bytes = tar_entry("folder/a.bin", "hello") + std::string(512, '\0');
  ByteReader reader(as_bytes(bytes), "x.tar");
  const auto entry = parse_tar_header(reader);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->name, "folder/a.bin");
  EXPECT_EQ(entry->size, 5);
  EXPECT_TRUE(entry->is_file);
  reader.take(kTarBlock, "data");
  EXPECT_FALSE(parse_tar_header(reader));
  std::string wrong = bytes;
  wrong[3] = 'X';
  ByteReader damaged(as_bytes(wrong), "x.tar");
  EXPECT_NE(error_of<DataError>([&] {
              parse_tar_header(damaged);
            }).find("x.tar: offset 0: expected a tar header with checksum"),
            std::string::npos);
  ByteReader brief(as_bytes("short"), "x.tar");
  EXPECT_THROW(parse_tar_header(brief), DataError);
}

}  // namespace
}  // namespace millstream
