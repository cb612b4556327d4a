#include "millstream/codec/packed.h"

#include <gtest/gtest.h>

#include "millstream/core/error.h"
#include "temporary_folder.h"

namespace millstream {
namespace {

const Schema kSchema = {{"image", DType::kUint8, {2, 3}}, {"y", DType::kInt64, {}}};

PackedLayout parse(std::string_view bytes, std::int64_t size) {
  ByteReader reader(as_bytes(bytes), "x.packed");
  return parse_packed(reader, size);
}

std::string error(std::string_view bytes, std::int64_t size) {
  return error_of<DataError>([&] { parse(bytes, size); });
}

TEST(Packed, HeadersRoundTrip) {
  const std::string header = packed_header(kSchema, 10);
  EXPECT_EQ(header.size() % 64, 0u);
  const auto offset = static_cast<std::int64_t>(header.size());
  const PackedLayout layout = parse(header, offset + 140);
  EXPECT_EQ(layout.schema, kSchema);
  EXPECT_EQ(layout.records, 10);
  EXPECT_EQ(layout.offset, offset);
}

TEST(Packed, WritesTheDocumentedBytes) {
  const std::string header = packed_header({{"y", DType::kInt8, {7}}}, 3);
  std::string expected = "MSPACKED";
  expected += raw(std::uint32_t{1}) + raw(std::uint32_t{1}) + raw(std::uint64_t{3}) +
              raw(std::uint64_t{64}) + raw(std::uint16_t{1}) + "y" +
              raw(std::uint8_t{4}) + "int8" + raw(std::uint8_t{1}) +
              raw(std::uint64_t{7});
  expected.resize(64, '\0');
  EXPECT_EQ(header, expected);
}

TEST(Packed, ErrorsNameOffsetExpectedAndFound) {
  const std::string header = packed_header(kSchema, 10);
  const auto offset = static_cast<std::int64_t>(header.size());
  EXPECT_EQ(error(header, offset + 139),
            "x.packed: offset 254: expected 10 records of 14 bytes each, found 9 and "
            "13 bytes");
  EXPECT_EQ(error(header, offset + 168),
            "x.packed: offset 268: expected 10 records of 14 bytes each, found 12 and "
            "0 bytes");
  EXPECT_EQ(error(packed_header(kSchema, 0), offset - 1),
            "x.packed: offset 127: expected records at 128, found the end of the file");
  EXPECT_EQ(error("MSPICK\xED\n" + header.substr(8), offset + 140),
            "x.packed: offset 0: expected the magic 'MSPACKED', found "
            "'MSPICK\\xed\\x0a'");
  for (std::size_t length = 0; length < 72; ++length) {
    EXPECT_THROW(parse(header.substr(0, length), offset + 140), DataError) << length;
  }
  std::string wrong = header;
  wrong[8] = 2;
  EXPECT_EQ(error(wrong, offset + 140),
            "x.packed: offset 8: expected version 1, found 2");
  wrong = header;
  wrong[24] = 8;  // records before the end of the header
  EXPECT_NE(error(wrong, offset + 140).find("offset 24: expected records at"),
            std::string::npos);
  wrong = header;
  wrong[34] = '\xFF';
  EXPECT_NE(error(wrong, offset + 140)
                .find("x.packed: offset 34: expected a name in UTF-8, found '\\xff"),
            std::string::npos);
  wrong = header;
  wrong.replace(40, 5, "uont8");
  EXPECT_NE(error(wrong, offset + 140).find("expected the name of a dtype"),
            std::string::npos);
  wrong = packed_header({{"xa", DType::kInt8, {}}, {"xb", DType::kInt8, {}}}, 10);
  wrong[wrong.find("xb") + 1] = 'a';
  EXPECT_EQ(error(wrong, offset + 140),
            "x.packed: offset 42: expected different field names, found 'xa' twice");
  EXPECT_THROW(packed_header({}, 1), ArgumentError);
  EXPECT_THROW(packed_header({{"x", DType::kInt8, {0}}}, 1), ArgumentError);
}

}  // namespace
}  // namespace millstream
