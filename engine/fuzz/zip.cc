#include "millstream/codec/zip.h"

#include <algorithm>

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  return accept_or_refuse([&] {
    const auto bytes = static_cast<std::int64_t>(size);
    const auto all = fuzzed(data, size);
    const auto tail = all.last(std::min<std::size_t>(size, kZipEnd));
    const ZipDirectory directory = find_zip_directory(tail, "fuzzed", bytes);
    require(directory.offset >= 0 && directory.size >= 0);
    require(directory.offset + directory.size <= bytes);
    ByteReader reader(all.subspan(static_cast<std::size_t>(directory.offset),
                                  static_cast<std::size_t>(directory.size)),
                      "fuzzed", directory.offset);
    for (const ZipMember& member : parse_zip_directory(reader, directory)) {
      if (member.header > bytes) continue;
      ByteReader header(all.subspan(static_cast<std::size_t>(member.header)), "fuzzed",
                        member.header);
      const std::int64_t begin = zip_member_data(header, member, bytes);
      require(begin >= 0 && member.packed >= 0 && begin + member.packed <= bytes);
    }
  });
}
