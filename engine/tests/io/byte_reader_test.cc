#include "millstream/io/byte_reader.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace millstream {
namespace {

TEST(ByteReader, ReadsBothByteOrders) {
  const std::string bytes("\x01\x02\x03\x04\x05\x06\x07\x08\xFF\x01\x02", 11);
  ByteReader little(as_bytes(bytes), "file");
  EXPECT_EQ(little.little<std::uint16_t>("a"), 0x0201);
  EXPECT_EQ(little.little<std::uint32_t>("a"), 0x06050403u);
  EXPECT_EQ(little.offset(), 6);
  ByteReader big(as_bytes(bytes), "file");
  EXPECT_EQ(big.big<std::uint64_t>("a"), 0x0102030405060708u);
  EXPECT_EQ(big.big<std::uint8_t>("a"), 0xFF);
  EXPECT_EQ(big.big<std::uint16_t>("a"), 0x0102);
  EXPECT_EQ(big.left(), 0);
}

TEST(ByteReader, ErrorsNameFileOffsetExpectedAndFound) {
  ByteReader reader(as_bytes("abcdef"), "x.bin", 100);
  EXPECT_EQ(reader.text(4, "a word"), "abcd");
  EXPECT_EQ(error_of<DataError>([&] { reader.take(5, "a tail"); }),
            "x.bin: offset 104: expected 5 bytes of a tail, found 2 bytes");
  EXPECT_EQ(error_of<DataError>([&] { reader.take(-1, "a tail"); }),
            "x.bin: offset 104: expected -1 bytes of a tail, found 2 bytes");
  EXPECT_EQ(
      error_of<DataError>([&] { reader.text_until('\n', "a line"); }),
      "x.bin: offset 104: expected the end of a line, found the end of the bytes");
  EXPECT_EQ(reader.text(2, "a tail"), "ef");
}

TEST(ByteReader, ReadsUpToADelimiter) {
  ByteReader reader(as_bytes("one\n\ntwo\n"), "x");
  EXPECT_EQ(reader.text_until('\n', "a line"), "one");
  EXPECT_EQ(reader.text_until('\n', "a line"), "");
  EXPECT_EQ(reader.text_until('\n', "a line"), "two");
  EXPECT_EQ(reader.left(), 0);
}

TEST(ByteReader, RejectsSizesThatAreTooLarge) {
  const std::string bytes = raw(std::uint64_t{1} << 62);
  ByteReader reader(as_bytes(bytes), "x");
  EXPECT_THROW(reader.size("a size"), DataError);
}

}  // namespace
}  // namespace millstream
