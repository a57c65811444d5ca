//! Subject and validity of a certificate. The subject names a user, in MongoDB's format.

use rustls::pki_types::CertificateDer;
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateInfo {
    /// The subject in RFC 2253 format: the most specific part first, with OpenSSL's short names.
    pub subject: String,
    /// Start of the validity period.
    pub not_before: SystemTime,
    /// End of the validity period.
    pub not_after: SystemTime,
}

/// OpenSSL's short names of attributes, as MongoDB prints them. Other attributes are printed by number.
const NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Reads the fields of a certificate.
///
/// # Errors
/// Bytes that are not a certificate.
pub fn certificate_info(certificate: &CertificateDer<'_>) -> Result<CertificateInfo, String> {
    let certificate = Certificate::from_der(certificate)
        .map_err(|error| format!("the certificate can't be read: {error}"))?;
    let certificate = certificate.tbs_certificate();
    let mut subject = String::new();
    let parts: Vec<_> = certificate.subject().as_ref().iter().collect();
    for part in parts.into_iter().rev() {
        for (at, attribute) in part.as_ref().iter().enumerate() {
            if !subject.is_empty() {
                subject.push(if at == 0 { ',' } else { '+' });
            }
            subject.push_str(&short_name(&attribute.oid));
            subject.push('=');
            let text = text(attribute.value.tag(), attribute.value.value());
            escape(&text, &mut subject);
        }
    }
    let validity = certificate.validity();
    Ok(CertificateInfo {
        subject,
        not_before: validity.not_before.to_system_time(),
        not_after: validity.not_after.to_system_time(),
    })
}

fn short_name(oid: &ObjectIdentifier) -> String {
    let number = oid.to_string();
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or(number, |(_, name)| (*name).to_string())
}

/// Decodes a string value. Certificates have half a dozen string types.
fn text(tag: Tag, bytes: &[u8]) -> String {
    match tag {
        Tag::BmpString => {
            let units = bytes
                .chunks_exact(2)
                .map(|pair| pair.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte)));
            char::decode_utf16(units).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Tag::TeletexString => bytes.iter().map(|byte| char::from(*byte)).collect(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Escapes special characters of RFC 2253.
fn escape(text: &str, out: &mut String) {
    let last = text.chars().count().saturating_sub(1);
    for (at, c) in text.chars().enumerate() {
        let at_an_end = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => out.extend(['\\', c]),
            _ if at_an_end => out.extend(['\\', c]),
            '\0'..='\x1F' | '\x7F' => out.push_str(&format!("\\{:02X}", u32::from(c))),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    fn rendered(parts: &[(DnType, DnValue)]) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate_info(certificate.der()).unwrap().subject
    }

    #[test]
    fn names_begin_with_the_most_specific_part() {
        let parts = [
            (DnType::CountryName, DnValue::PrintableString("US".try_into().unwrap())),
            (DnType::StateOrProvinceName, DnValue::Utf8String("New York".into())),
            (DnType::OrganizationName, DnValue::Utf8String("A, B + Co".into())),
            (DnType::CommonName, DnValue::Utf8String(" Zoë#".into())),
            (
                DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]),
                DnValue::Ia5String("a@b".try_into().unwrap()),
            ),
            (DnType::CustomDnType(vec![1, 2, 3, 4]), DnValue::BmpString("ä".try_into().unwrap())),
        ];
        assert_eq!(
            rendered(&parts),
            "1.2.3.4=ä,emailAddress=a@b,CN=\\ Zoë#,O=A\\, B \\+ Co,ST=New York,C=US"
        );
    }

    #[test]
    fn invalid_certificates_are_reported() {
        assert!(certificate_info(&CertificateDer::from(vec![0x30, 3, 1, 2, 3])).is_err());
    }
}
