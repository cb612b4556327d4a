#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gzip.h"
#include "temporary_folder.h"

namespace millstream {

struct ZipContent {
  std::string name;
  std::string bytes;
  bool deflated = false;
};

/// Builds a zip file. If `large`, all sizes and offsets are in 64-bit fields.
inline std::string make_zip(const std::vector<ZipContent>& contents, bool large,
                            const std::string& comment = "") {
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  std::string zip;
  std::string directory;
  for (const ZipContent& content : contents) {
    const std::string packed =
        content.deflated ? deflated(content.bytes, -15) : content.bytes;
    const auto crc =
        static_cast<U32>(crc32(0, reinterpret_cast<const Bytef*>(content.bytes.data()),
                               static_cast<uInt>(content.bytes.size())));
    const auto size = [large](U64 value) {
      return raw(large ? U32{0xFFFFFFFF} : static_cast<U32>(value));
    };
    const U64 offset = zip.size();
    std::string extra;
    if (large) {
      extra = raw(U16{1}) + raw(U16{24}) + raw(U64{content.bytes.size()}) +
              raw(U64{packed.size()}) + raw(offset);
    }
    const std::string common =
        raw(U16{0}) + raw(U16{content.deflated ? U16{8} : U16{0}}) + raw(U32{0}) +
        raw(crc) + size(packed.size()) + size(content.bytes.size()) +
        raw(static_cast<U16>(content.name.size()));
    const std::string local_extra = "\x99\x99" + raw(U16{2}) + "??";
    zip += "PK\x03\x04" + raw(U16{20}) + common +
           raw(static_cast<U16>(local_extra.size())) + content.name + local_extra +
           packed;
    directory += "PK\x01\x02" + raw(U32{0x00140014}) + common +
                 raw(static_cast<U16>(extra.size())) + raw(U16{0}) + raw(U64{0}) +
                 size(offset) + content.name + extra;
  }
  const U64 start = zip.size();
  const U64 count = contents.size();
  zip += directory;
  if (large) {
    const U64 end = zip.size();
    zip += "PK\x06\x06" + raw(U64{44}) + raw(U32{0x002D002D}) + raw(U64{0}) +
           raw(count) + raw(count) + raw(U64{directory.size()}) + raw(start);
    zip += "PK\x06\x07" + raw(U32{0}) + raw(end) + raw(U32{1});
  }
  zip += "PK\x05\x06" + raw(U32{0}) + raw(static_cast<U16>(count)) +
         raw(static_cast<U16>(count)) + raw(static_cast<U32>(directory.size())) +
         raw(large ? U32{0xFFFFFFFF} : static_cast<U32>(start)) +
         raw(static_cast<U16>(comment.size())) + comment;
  return zip;
}

}  // namespace millstream
